"""The records of a topic at a place in the transaction log, and the changes that entries make.

An entry has the new state of a record only, and a deletion has keys. So the states before are kept:
of the records that the client has, in the form in which it has them. The log has the lifetimes of
records, not their expirations: a record is taken to expire at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec

from server.expressions.regex.budget import TooCostlyError
from server.sql.query.tables import SqlType
from server.sql.tables.columns import Metadata
from server.sql.tables.errors import InvalidFilterError, ScanTooLargeError
from server.sql.tables.metadata_arrays import BODY_METADATA
from server.storage.journal import JournalEntryKind
from server.storage.sow.log_apply import is_superseded, record_of
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.live.feed import Change
    from server.sql.tables.history_rows import EntryFilter
    from server.sql.tables.row_chunk import RowChunk
    from server.storage.journal import JournalEntry
    from server.storage.sow.topic_records import SowTopicRecords

RECORD_METADATA: Final = (
    Metadata.KEY,
    Metadata.TIMESTAMP,
    Metadata.EXPIRES,
    Metadata.SEQUENCE,
    Metadata.CORRELATION_ID,
    Metadata.BOOKMARK,
)
"""The metadata of which `records_of` makes records."""

_RECORD_BYTES: Final = 500
"""Approximate memory of a record, apart from the body."""

_EMPTY: Final = Record("", b"", "")


class PastRecords:
    """The records that the client has.

    Args:
        sow: the topic.
        entry_filter: tests which entries the client gets.
        redact: removes the fields that the user may not see from a body.
        max_bytes: the maximum memory.
        shows_expiry: whether the client gets the times at which records expire.
    """

    def __init__(
        self,
        sow: SowTopicRecords,
        entry_filter: EntryFilter,
        redact: Callable[[bytes], bytes] | None,
        max_bytes: int,
        *,
        shows_expiry: bool,
    ) -> None:
        self._sow: Final = sow
        self._filter: Final = entry_filter
        self._redact: Final = redact
        self._max_bytes: Final = max_bytes
        self._shows_expiry: Final = shows_expiry
        self._records: dict[str, Record] = {}
        self._expiries: list[tuple[int, str, int]] = []  # time, key and sequence of a state
        self._bytes = 0

    @property
    def records(self) -> Sequence[Record]:
        """The records."""
        return list(self._records.values())

    def put(self, record: Record) -> Record | None:
        """Add a record that the client gets; return its state before.

        Raises:
            ScanTooLargeError: the records take too much memory.
        """
        previous = self._remove(record.key)
        self._records[record.key] = record
        self._bytes += len(record.body) + _RECORD_BYTES
        if self._bytes > self._max_bytes:
            raise ScanTooLargeError(
                f"the records at that moment take more than {self._max_bytes >> 20} MB"
            )
        if record.expires:
            heappush(self._expiries, (record.expires, record.key, record.sequence))
        return previous

    def apply(self, entry: JournalEntry, time_us: int) -> Iterator[Change]:
        """Yield the changes that an entry makes, after the expirations before it.

        Args:
            entry: the entry.
            time_us: its time, in microseconds since 1970.

        Raises:
            InvalidFilterError: the filter takes too many steps.
            ScanTooLargeError: the records take too much memory.
        """
        yield from self.expire(time_us)
        time_s = to_seconds(time_us)
        if entry.kind == JournalEntryKind.SOW_DELETE:
            for key in msgspec.json.decode(entry.body, type=list[str]):
                deleted = self._records.get(key)
                if deleted is not None and not is_superseded(entry, deleted):
                    self._remove(key)
                    yield time_s, -1, deleted
            return
        if not entry.sow_key and not entry.given_key:
            return  # recorded before the topic had records
        record = record_of(self._sow, entry)
        if is_superseded(entry, self._records.get(record.key)):
            return
        try:
            is_included = self._filter.matches(entry)
        except TooCostlyError as error:
            raise InvalidFilterError(str(error)) from None
        if is_included:
            if self._redact is not None:
                record = record._replace(body=self._redact(record.body))
            previous = self.put(record)
        else:
            previous = self._remove(record.key)
        if previous is not None:
            yield time_s, -1, previous
        if is_included:
            yield time_s, 1, record

    def expire(self, time_us: int) -> Iterator[Change]:
        """Yield the expirations up to a time, in microseconds since 1970."""
        while self._expiries and self._expiries[0][0] <= time_us * NANOSECONDS_IN_MICROSECOND:
            expires, key, sequence = heappop(self._expiries)
            if self._records.get(key, _EMPTY).sequence == sequence:
                expired = self._remove(key)
                assert expired is not None  # noqa: S101 - it has this sequence
                yield to_seconds(expires // NANOSECONDS_IN_MICROSECOND), -1, expired

    def reconcile(self, present: Sequence[RowChunk], time_s: float) -> Iterator[Sequence[Change]]:
        """Yield the differences from the records that are present; keep no records.

        Records may differ where the log does not tell all: by their expiration, if the server was
        stopped at that time or had another lifetime for them, and those that were stored before the
        topic was recorded.

        Args:
            present: the records that the client has from now on.
            time_s: the time of the changes, in seconds since 1970.
        """
        for chunk in present:
            changes: list[Change] = []
            for record in records_of(chunk, self._sow.name):
                previous = self._records.pop(record.key, None)
                if previous is None or not self._is_same(previous, record):
                    if previous is not None:
                        changes.append((time_s, -1, previous))
                    changes.append((time_s, 1, record))
            yield changes
        yield [(time_s, -1, record) for record in self._records.values()]
        self._records, self._expiries, self._bytes = {}, [], 0

    def _is_same(self, one: Record, other: Record) -> bool:
        return (
            one.sequence == other.sequence
            and one.body == other.body
            and (one.expires == other.expires or not self._shows_expiry)
        )

    def _remove(self, key: str) -> Record | None:
        previous = self._records.pop(key, None)
        if previous is not None:
            self._bytes -= len(previous.body) + _RECORD_BYTES
        return previous


def records_of(chunk: RowChunk, topic: str) -> Iterator[Record]:
    """Yield the records of a chunk that has `RECORD_METADATA` and bodies."""
    metadata = chunk.metadata
    assert metadata is not None  # noqa: S101 - it was requested
    (bodies,) = [metadata[name] for name in BODY_METADATA & metadata.keys()]
    columns = (
        metadata[Metadata.KEY].to_pylist(),
        bodies.to_pylist(),
        _nanoseconds(metadata, Metadata.TIMESTAMP),
        _nanoseconds(metadata, Metadata.EXPIRES),
        metadata[Metadata.SEQUENCE].to_pylist(),
        metadata[Metadata.CORRELATION_ID].to_pylist(),
        metadata[Metadata.BOOKMARK].to_pylist(),
    )
    for key, body, timestamp, expires, sequence, correlation_id, bookmark in zip(
        *columns, strict=True
    ):
        yield Record(
            key, body, topic, timestamp, expires, sequence, correlation_id or "", bookmark or ""
        )


def _nanoseconds(metadata: Mapping[Metadata, pa.Array], name: Metadata) -> Sequence[int]:
    """Return times in nanoseconds since 1970, 0 for NULL."""
    times = metadata[name].cast(SqlType.BIGINT.arrow_type).to_pylist()
    return [(time or 0) * NANOSECONDS_IN_MICROSECOND for time in times]


def to_seconds(time_us: int) -> float:
    """Return microseconds as seconds that are the same microseconds when they are rounded down."""
    return (time_us + 0.5) / 1_000_000
