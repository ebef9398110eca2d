"""Reads one journal file without the instance, for tools and offline readers.

Trusts nothing: a file may be damaged anywhere, still be written to, or be no journal at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.storage.journal.files import open_unknown, salvage_header, unpack_page
from server.storage.journal.format.entry import JournalEntry
from server.storage.journal.format.layout import (
    PAGE,
    RECORD_SIZE,
    EntryRow,
    FileSeal,
    JournalFileHeader,
    JournalFormatError,
    JournalVersionError,
)
from server.storage.journal.format.records import (
    make_entry,
    read_body,
    read_names,
    read_rows,
    slots,
)
from server.storage.journal.log_end import find_file_extent

_BATCH_SIZE: Final = 512


@dataclass(frozen=True, slots=True)
class EntrySlot:
    """The contents of the place of one entry.

    Attributes:
        number: number of the entry in its file.
        offset: offset of its record in the file, in bytes.
        row: its record; None if it is damaged.
        entry: the entry; None if it is damaged.
    """

    number: int
    offset: int
    row: EntryRow | None
    entry: JournalEntry | None


class JournalReader:
    """Reads one journal file, compressed or not.

    Args:
        path: path of the file.

    Attributes:
        header: its header; None if it has not been taken into use.
        seal: its seal; None if it is not full.
        count: number of entries in it, damaged ones included.
        has_lost_header: the header was reconstructed from its entries.
        size: size of the file in bytes, decompressed.
        is_intact: it is not compressed, or its compressed data are intact.
        missing_bytes: number of bytes missing at its end, by the size in its header; the last of
            them were the records of its entries.

    Raises:
        OSError: it cannot be read.
        JournalFormatError: it is not a journal file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._source, self.missing_bytes, self.is_intact = open_unknown(path)
        self.size = self._source.size
        self.has_lost_header = False
        self.header, self.seal = self._read_page()
        self.count = self._count_entries()
        self._first_txid = 0 if self.header is None else self.header.first_txid
        self._definitions = read_names(self._source, self._first_txid, self.count)

    def slots(self, start: int = 0, stop: int | None = None) -> Iterator[EntrySlot]:
        """Yield the slots of the entries with numbers from `start` to before `stop`, in order."""
        stop = self.count if stop is None else min(stop, self.count)
        for begin in range(start, stop, _BATCH_SIZE):
            rows = read_rows(self._source, self._first_txid, begin, min(begin + _BATCH_SIZE, stop))
            for number, row in enumerate(rows, begin):
                data = None if row is None else read_body(self._source, row)
                entry = (
                    None
                    if row is None or data is None
                    else make_entry(row, data, self._definitions)
                )
                yield EntrySlot(number, self.size - RECORD_SIZE * (number + 1), row, entry)

    def _read_page(self) -> tuple[JournalFileHeader | None, FileSeal | None]:
        page = self._source.read(0, PAGE)
        if len(page) < PAGE:
            raise JournalFormatError(f"it has {self.size} bytes, less than a journal file")
        try:
            header, seal = unpack_page(page)
        except JournalVersionError:
            raise
        except JournalFormatError:
            header, seal = salvage_header(self._source, 0, ""), None
            if header is None:
                raise
            self.has_lost_header = True
        if header is None:  # zeros: the file is unused, unless it has entries
            header = salvage_header(self._source, 0, "")
            self.has_lost_header = header is not None
        return header, seal

    def _count_entries(self) -> int:
        if self.header is None:
            return 0
        if self.seal is not None:
            return min(self.seal.count, slots(self.size))
        return find_file_extent(self._source, self.header.first_txid).count
