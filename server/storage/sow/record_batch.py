"""Batches: messages that become records together; shared values are stored once, others in columns.

`SowTopicRecords.draft_batch` makes them: of messages as they are, enriched ones, and deltas merged
with the records before them. Some rows may delete a record instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Final, TypeAlias, cast

from server.storage.journal.write.blocks import (
    FieldColumn,
    each,
    fields_at,
    map_column,
    of_one,
    part_of,
    values_at,
)
from server.storage.sow.records import Record

TopicColumn: TypeAlias = str | Sequence[str]
"""The topic of records: one for all, or one for each if their table has those of many topics."""


KeyColumn: TypeAlias = Sequence[int] | Sequence[str]
"""The SOW keys of records: numbers that were made from fields, or the texts of publishers."""


class Deletion:
    """A deletion among messages; it names its record by a body, as a publish of it does.

    Attributes:
        count: the number of records that it has deleted, 0 or 1.
    """

    def __init__(self) -> None:
        self.count = 0


class SowRecordBatch:
    """Records that are put one after the other. See `Record` for the fields.

    Args:
        topic: the topic of all of them; for a topic with a Pattern the topics of each.
        keys: their SOW keys.
        bodies: the messages.
        sequences: their places in the instance's order of changes, ascending.
        timestamp: in nanoseconds since 1970.
        expires: when they expire, in nanoseconds since 1970; 0 for never.
        publisher: the number that represents the publisher in bookmarks.
        numbers: the publisher's sequence numbers in bookmarks; empty if they have no bookmarks.
        correlation_ids: the publisher's correlation ids, "" for none; empty if there are none.
        deletions: the deletions, which delete the records of their keys; None for a record to put;
            empty if there are none. A store gets no deletions.
    """

    def __init__(
        self,
        topic: TopicColumn,
        keys: KeyColumn,
        bodies: Sequence[bytes],
        sequences: Sequence[int],
        timestamp: FieldColumn,
        expires: FieldColumn = 0,
        publisher: FieldColumn = 0,
        numbers: Sequence[int] = (),
        correlation_ids: Sequence[str] = (),
        deletions: Sequence[Deletion | None] = (),
    ) -> None:
        self.topic: Final = topic
        self.keys: Final = keys
        self.bodies: Final = bodies
        self.sequences: Final = sequences
        self.timestamp: Final = timestamp
        self.expires: Final = expires
        self.publisher: Final = publisher
        self.numbers: Final = numbers
        self.correlation_ids: Final = correlation_ids
        self.deletions: Final = deletions

    def identities(self, start: int = 0) -> Iterable[str]:
        """Return the identities of those from `start` on; see `store.identity_of`."""
        keys = map(str, self.keys[start:])
        if isinstance(self.topic, str):
            return keys
        return map("\0".join, zip(self.topic[start:], keys, strict=True))

    def bookmark_at(self, position: int) -> str:
        """Return the bookmark of one of them."""
        if not self.numbers:
            return ""
        return f"{of_one(self.publisher, position)}|{self.numbers[position]}|"

    def part(self, start: int, end: int) -> SowRecordBatch:
        """Return those from `start` to `end`."""
        if not start and end == len(self.bodies):
            return self
        return SowRecordBatch(
            self.topic if isinstance(self.topic, str) else self.topic[start:end],
            self.keys[start:end],
            self.bodies[start:end],
            self.sequences[start:end],
            part_of(self.timestamp, start, end),
            part_of(self.expires, start, end),
            part_of(self.publisher, start, end),
            self.numbers[start:end],
            self.correlation_ids[start:end],
            self.deletions[start:end],
        )

    def pick(self, rows: Sequence[int]) -> SowRecordBatch:
        """Return those at some rows."""
        return SowRecordBatch(
            self.topic if isinstance(self.topic, str) else values_at(self.topic, rows),
            cast("KeyColumn", values_at(cast("Sequence[object]", self.keys), rows)),
            values_at(self.bodies, rows),
            values_at(self.sequences, rows),
            fields_at(self.timestamp, rows),
            fields_at(self.expires, rows),
            fields_at(self.publisher, rows),
            values_at(self.numbers, rows),
            values_at(self.correlation_ids, rows),
            values_at(self.deletions, rows),
        )

    def ranges(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the ranges of records to put, and of deletions: begin, end, whether they delete."""
        if not self.deletions:
            yield 0, len(self.bodies), False
            return
        end = 0
        for is_put, rows in groupby(self.deletions, lambda deletion: deletion is None):
            start, end = end, end + len([*rows])
            yield start, end, not is_put

    def without_deletions(self) -> SowRecordBatch:
        """Return the records to put."""
        if not self.deletions:
            return self
        return self.pick([row for row, deletion in enumerate(self.deletions) if deletion is None])

    @property
    def logged_keys(self) -> Sequence[int | str]:
        """The SOW keys of their entries in the transaction log; 0 for a deletion, without one."""
        keys: Sequence[int | str] = self.keys
        if not self.deletions:
            return keys
        pairs = zip(keys, self.deletions, strict=True)
        return [key if deletion is None else 0 for key, deletion in pairs]

    def with_bodies(self, bodies: Sequence[bytes]) -> SowRecordBatch:
        """Return them with other bodies."""
        return SowRecordBatch(
            self.topic,
            self.keys,
            bodies,
            self.sequences,
            self.timestamp,
            self.expires,
            self.publisher,
            self.numbers,
            self.correlation_ids,
            self.deletions,
        )

    def recorded(
        self, sequences: Sequence[int], time_ns: int, publisher: FieldColumn, numbers: Sequence[int]
    ) -> SowRecordBatch:
        """Return drafts, which have lifetimes in place of expiry times, as records to put.

        Args:
            sequences: their places: the txids, if they are in the transaction log.
            time_ns: the time at which they got these, in nanoseconds since 1970.
            publisher: the number that represents the publisher in bookmarks.
            numbers: the publisher's sequence numbers in bookmarks; empty if they have no bookmarks.
        """
        return SowRecordBatch(
            self.topic,
            self.keys,
            self.bodies,
            sequences,
            time_ns,
            map_column(self.expires, lambda lifetime: time_ns + lifetime if lifetime else 0),
            publisher,
            numbers,
            self.correlation_ids,
            self.deletions,
        )

    def split_by_publisher(self) -> Iterator[SowRecordBatch]:
        """Yield them in parts, each from a single publisher."""
        if isinstance(self.publisher, int):
            yield self
            return
        end = 0
        for publisher, group in groupby(self.publisher):
            start, end = end, end + len([*group])
            part = self.part(start, end)
            yield SowRecordBatch(
                part.topic,
                part.keys,
                part.bodies,
                part.sequences,
                part.timestamp,
                part.expires,
                publisher,
                part.numbers,
                part.correlation_ids,
                part.deletions,
            )

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
            repeat(self.topic, count) if isinstance(self.topic, str) else self.topic[start:],
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
            self.topic if isinstance(self.topic, str) else self.topic[position],
            of_one(self.timestamp, position),
            of_one(self.expires, position),
            self.sequences[position],
            self.correlation_ids[position] if self.correlation_ids else "",
            self.bookmark_at(position),
        )
