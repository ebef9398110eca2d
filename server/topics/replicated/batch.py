"""Entries of another instance, on their way into one topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from server.message_types.base import BodyError
from server.replication.core import ConstantColumn, RecorderResult
from server.storage.journal import MESSAGES, EntryColumns, EntryTooLargeError, JournalEntryKind
from server.storage.journal.format.layout import crc32c, decode_text, pack_extras, unpack_extras
from server.storage.sow.keys.key_source import KeyRefusedError
from server.storage.sow.store import RecordTooLargeError
from server.topics.subscriptions.delivery.envelope import ReplicatedEnvelope
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.replication.core import BatchColumns, EntryColumn
    from server.storage.journal import AppendResult


APPLY_BATCH_SIZE: Final = 1024
"""The most entries that are appended in one step."""

_FOR_GOOD: Final = (
    BodyError,
    KeyRefusedError,
    EntryTooLargeError,
    RecordTooLargeError,
    msgspec.MsgspecError,
)
"""Permanent errors: a defect of the message itself."""


class EntryContents:
    """The contents of entries.

    Args:
        columns: the entries.

    Attributes:
        columns: see above.
        has_extras: whether any entry has extras.
        bodies: the messages.
    """

    def __init__(self, columns: BatchColumns) -> None:
        self.columns: Final = columns
        self.has_extras: Final = any(
            name.extras_length for name in columns.used_properties().values()
        )
        self.bodies: Final = _without_extras(columns) if self.has_extras else columns.data

    def bookmark(self, position: int) -> str:
        """Return the bookmark of a message."""
        return f"{self.columns.clients[position]}|{self.columns.sequences[position]}|"

    def extras(self, position: int) -> tuple[bytes, bytes]:
        """Return the correlation id of a message, and the SOW key that its publisher gave."""
        length = self.columns.properties_of(position).extras_length if self.has_extras else 0
        return unpack_extras(self.columns.data[position][-length:]) if length else (b"", b"")

    def any_extras(self, positions: Sequence[int]) -> bool:
        """Return whether any of some messages has extras."""
        return self.has_extras and any(
            self.columns.properties_of(index).extras_length for index in positions
        )

    def sow_key(self, position: int) -> str | None:
        """Return the SOW key of a message; None if it was recorded without one."""
        given = self.extras(position)[1]
        if given:
            return decode_text(given)
        number = self.columns.sow_keys[position]
        return str(number) if number else None

    def correlation_id(self, position: int) -> str:
        """Return the correlation id of a message."""
        return decode_text(self.extras(position)[0]) if self.has_extras else ""

    def correlation_ids(self, positions: Sequence[int]) -> Sequence[str]:
        """Return the correlation ids of some messages; empty if none of them has any."""
        if not self.any_extras(positions):
            return ()
        correlation_ids = [self.correlation_id(position) for position in positions]
        return correlation_ids if any(correlation_ids) else ()

    def envelope(self, position: int, timestamp: int) -> ReplicatedEnvelope:
        """Return a message's metadata.

        Args:
            position: the position of the message.
            timestamp: the time of recording, in microseconds since 1970.
        """
        envelope = self.common_envelope(position, timestamp, self.correlation_id(position))
        envelope.bookmark = self.bookmark(position)
        return envelope

    def common_envelope(
        self, position: int, timestamp: int, correlation_id: str = ""
    ) -> ReplicatedEnvelope:
        """Return the metadata shared by all messages with a message's name, except for extras."""
        user = self.columns.properties_of(position).origin.auth_id
        return ReplicatedEnvelope(user, timestamp / MICROSECONDS_PER_SECOND, correlation_id or None)

    def uniform_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of messages that differ in numbers and bodies only, as first and end."""
        columns = self.columns
        if self.has_extras:
            yield from ((position, position + 1) for position in range(start, stop))
            return
        if all(
            isinstance(one, ConstantColumn) for one in (columns.clients, columns.expirations)
        ) and _all_or_none(columns.sow_keys):
            yield start, stop
            return
        keys = (
            (
                columns.clients[position],
                columns.expirations[position],
                columns.sow_keys[position] > 0,
            )
            for position in range(start, stop)
        )
        for _, group in groupby(keys):
            end = start + sum(1 for _ in group)
            yield start, end
            start = end


class ReplicatedBatch(EntryContents):
    """Entries of one name and one kind, which are taken from the front.

    Args:
        batch: the entries.
        source: the hash of the instance that sent them.

    Attributes:
        topic: the topic that they were published to.
        origin: user and path.
        kind: the kind of all of them; deltas arrive merged, and count as publishes.
        position: of the first entry that has not been handled.
        problem: why that one has to wait; None if it has not been tried.
        refused_entries: entries that can never be recorded, each with the reason.
        unapplied_entries: entries that are in the log and could not be applied, each with the
            reason.
    """

    def __init__(self, batch: BatchColumns, source: int) -> None:
        super().__init__(batch)
        self.topic, self.origin, _ = batch.properties_of(0)
        self._content: Final = batch.journal_columns(source)
        kind = batch.kinds[0]
        self.kind: Final = JournalEntryKind.PUBLISH if kind in MESSAGES else JournalEntryKind(kind)
        self.position = 0
        self.problem: Exception | None = None
        self.refused_entries: list[tuple[int, Exception]] = []
        self.unapplied_entries: list[tuple[int, Exception]] = []
        self._txid_range = 0, 0

    @property
    def has_pending(self) -> bool:
        """True if entries are left that can be handled now."""
        return self.problem is None and self.position < len(self.columns.data)

    @property
    def outcome(self) -> RecorderResult:
        """The outcome: entries handled, and their first and last txid."""
        return RecorderResult(self.position, *self._txid_range)

    # Outcome of the entries.

    def record_appended(self, appended: AppendResult) -> None:
        """Advance past entries that have been appended to the log, and note a problem if any."""
        if appended.txids:
            self._txid_range = self._txid_range[0] or appended.txids[0], appended.txids[-1]
            self.position += len(appended.txids)
        if appended.problem is not None:
            self.record_problem(appended.problem)

    def record_problem(self, problem: Exception) -> None:
        """Note that the next entry cannot be recorded: never, or not at the moment."""
        if isinstance(problem, _FOR_GOOD):
            self.refuse_next(problem)
        else:
            self.problem = problem

    def refuse_next(self, problem: Exception) -> None:
        """Skip the next entry, which can never be recorded."""
        self.refused_entries.append((self.position, problem))
        self.position += 1

    def refuse_all(self, problem: Exception) -> None:
        """Skip all entries, of which none can ever be recorded."""
        self.refused_entries = [(position, problem) for position in range(len(self.columns.data))]
        self.position = len(self.columns.data)

    # Content for the journal.

    def next_content(self, most: int = APPLY_BATCH_SIZE) -> EntryColumns:
        """Return the next entries in the form that the journal appends."""
        stop = min(self.position + most, len(self.columns.data))
        return self._content.part(self.position, stop)

    def next_content_with_key(self, number: int, given: bytes) -> EntryColumns:
        """Return the next entry in the form that the journal appends, with another SOW key.

        Args:
            number: the key, if it is a number.
            given: the key, if it is not.
        """
        correlation_id, _ = self.extras(self.position)
        extras = pack_extras(correlation_id, given) if correlation_id or given else b""
        data = self.bodies[self.position] + extras
        return self.next_content(1)._replace(
            sow_keys=number, extras_length=len(extras), checksums=[crc32c(data)], data=[data]
        )


def _without_extras(batch: BatchColumns) -> Sequence[bytes]:
    lengths = [batch.properties[number].extras_length for number in batch.property_indexes]
    return [one[: len(one) - length] for one, length in zip(batch.data, lengths, strict=True)]


def _all_or_none(column: EntryColumn) -> bool:
    return isinstance(column, ConstantColumn) or all(column)
