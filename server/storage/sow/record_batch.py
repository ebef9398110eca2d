"""Batches: messages that become records together; shared values are stored once, others in columns.

Such records have keys that are numbers, and the bodies of messages as they are, or deltas merged
with the records before them (`SowTopicRecords.merge_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import TYPE_CHECKING, NamedTuple

from server.storage.journal.write.blocks import FieldColumn, each, map_column, of_one, part_of
from server.storage.sow.records import Record, RecordChange

if TYPE_CHECKING:
    from server.storage.sow.store import RecordStore


def expiry_times(lifetimes: FieldColumn, now: int) -> FieldColumn:
    """Return when records expire that are put at a given time; 0 for never.

    Args:
        lifetimes: their lifetimes in nanoseconds; 0 for no limit.
        now: the time of the put, in nanoseconds since 1970.
    """
    return map_column(lifetimes, lambda lifetime: now + lifetime if lifetime else 0)


class SowRecordBatch(NamedTuple):
    """Records that are put one after the other. See `Record` for the fields.

    Attributes:
        topic: the topic of all of them.
        keys: their SOW keys as numbers.
        bodies: the messages.
        sequences: their places in the instance's order of changes, ascending.
        timestamp: in nanoseconds since 1970.
        expires: when they expire, in nanoseconds since 1970; 0 for never.
        publisher: the number that represents the publisher in bookmarks.
        numbers: the publisher's sequence numbers in bookmarks; empty if they have no bookmarks.
        correlation_ids: the publisher's correlation ids, "" for none; empty if there are none.
    """

    topic: str
    keys: Sequence[int]
    bodies: Sequence[bytes]
    sequences: Sequence[int]
    timestamp: FieldColumn
    expires: FieldColumn = 0
    publisher: FieldColumn = 0
    numbers: Sequence[int] = ()
    correlation_ids: Sequence[str] = ()

    def bookmark_at(self, position: int) -> str:
        """Return the bookmark of one of them."""
        if not self.numbers:
            return ""
        return f"{of_one(self.publisher, position)}|{self.numbers[position]}|"

    def part(self, start: int, end: int) -> SowRecordBatch:
        """Return those from `start` to `end`."""
        if not start and end == len(self.bodies):
            return self
        return self._replace(
            keys=self.keys[start:end],
            bodies=self.bodies[start:end],
            sequences=self.sequences[start:end],
            timestamp=part_of(self.timestamp, start, end),
            expires=part_of(self.expires, start, end),
            publisher=part_of(self.publisher, start, end),
            numbers=self.numbers[start:end],
            correlation_ids=self.correlation_ids[start:end],
        )

    def split_by_publisher(self) -> Iterator[SowRecordBatch]:
        """Yield them in parts, each from a single publisher."""
        if isinstance(self.publisher, int):
            yield self
            return
        start = 0
        for publisher, group in groupby(self.publisher):
            end = start + sum(1 for _ in group)
            yield self.part(start, end)._replace(publisher=publisher)
            start = end

    def record_tuples(self, start: int) -> Iterator[tuple[object, ...]]:
        """Iterate over them from `start` on, each as the plain tuple of a `Record`'s fields."""
        count = len(self.bodies) - start
        timestamps, expires, publishers = (
            each(part_of(field, start, start + count), count)
            for field in (self.timestamp, self.expires, self.publisher)
        )
        bookmarks: Iterable[str] = repeat("", count)
        if self.numbers:
            bookmarks = [
                f"{publisher}|{number}|"
                for publisher, number in zip(publishers, self.numbers[start:], strict=True)
            ]
        return zip(
            map(str, self.keys[start:]),
            self.bodies[start:],
            repeat(self.topic, count),
            timestamps,
            expires,
            self.sequences[start:],
            self.correlation_ids[start:] or repeat("", count),
            bookmarks,
            repeat(None, count),
            strict=True,
        )

    def record_at(self, position: int) -> Record:
        """Return one of them."""
        return Record(
            str(self.keys[position]),
            self.bodies[position],
            self.topic,
            of_one(self.timestamp, position),
            of_one(self.expires, position),
            self.sequences[position],
            self.correlation_ids[position] if self.correlation_ids else "",
            self.bookmark_at(position),
        )


def changes_of(batch: SowRecordBatch, store: RecordStore) -> list[RecordChange]:
    """Return the changes that a batch makes if it is put into a store without a history.

    Raises:
        RecordStoreError: an earlier state cannot be read.
    """
    rows = {key: store.find_row(str(key)) for key in batch.keys}
    known = {key: row for key, row in rows.items() if row is not None}
    states = dict(zip(known, store.read_records([*known.values()]), strict=True))
    changes: list[RecordChange] = []
    for position, key in enumerate(batch.keys):
        record = batch.record_at(position)
        changes.append(RecordChange(record.key, record.topic, states.get(key), record))
        states[key] = record
    return changes
