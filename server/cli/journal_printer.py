"""Renders a journal file as text or JSON, and reports its damage."""

from __future__ import annotations

from server.app.stdio import say
from server.cli.journal_text import (
    entry_json,
    entry_text,
    footer_json,
    footer_text,
    header_json,
    header_text,
    size_of,
)
from server.cli.read_errors import SkipCounter
from server.storage.journal.inspection import EntrySlot, JournalReader


class JournalPrinter:
    """Renders the parts of a journal file.

    Args:
        reader: reader of the file.
        as_json: render lines of JSON instead of text.
        local: use the local time zone.
        with_data: include the bodies of messages.
    """

    def __init__(
        self,
        reader: JournalReader,
        *,
        as_json: bool,
        local: bool = False,
        with_data: bool = True,
    ) -> None:
        self._reader = reader
        self._as_json = as_json
        self._local = local
        self._with_data = with_data
        self._skipped = SkipCounter("damaged entry", "damaged entries")

    def render_header(self) -> bytes:
        """Return the header of the file."""
        make = header_json if self._as_json else header_text
        return make(self._reader, local=self._local)

    def render_entry(self, slot: EntrySlot) -> bytes:
        """Return one entry; a damaged one is only mentioned."""
        if self._as_json:
            return entry_json(self._reader, slot, local=self._local, with_data=self._with_data)
        return entry_text(slot, local=self._local, with_data=self._with_data)

    def render_footer(self) -> bytes:
        """Return the usage of the file's space."""
        return (footer_json if self._as_json else footer_text)(self._reader)

    def count_damage(self, slot: EntrySlot) -> None:
        """Count an entry, printed or not, as skipped if it is damaged."""
        if slot.entry is None:
            where = f"entry {slot.number}, whose record is at byte {slot.offset}"
            self._skipped.add(size_of(slot), where)

    def report_damage(self, command: str) -> bool:
        """Report the damage of the file.

        Args:
            command: name of the reporting command.

        Returns:
            True if there is damage.
        """
        reader = self._reader
        if not reader.is_intact:
            say(
                f"{command}: {reader.path}: its compressed data are damaged; what could be"
                f" decompressed are {reader.size - reader.missing_bytes} bytes"
            )
        if reader.has_lost_header:
            say(f"{command}: {reader.path}: its header is damaged; entries are read without it")
        if reader.missing_bytes:
            say(
                f"{command}: {reader.path}: {reader.missing_bytes} bytes are missing at its"
                " end, where"
                " the records of its entries are"
            )
        has_skipped = self._skipped.report(command, reader.path)
        is_good = reader.is_intact and not reader.has_lost_header and not reader.missing_bytes
        return has_skipped or not is_good
