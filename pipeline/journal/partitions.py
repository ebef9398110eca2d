"""A partition of a journal, as planned, and a block of entries, as read by a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import InputPartition

from pipeline.journal.predicates import ColumnPredicate
from pipeline.packed_bodies import PackedBodies
from server.storage.journal.format.layout import RECORD_SIZE

RecordArray = npt.NDArray[np.void]
"""Records of type `server.storage.journal.format.records.RECORD_TYPE`, or one of their columns."""
SelectedRows: TypeAlias = npt.NDArray[np.bool_ | np.signedinteger[Any]] | list[int]
"""The numbers of some rows, or a mask."""

_OPAQUE_RECORD: Final = np.dtype((np.void, RECORD_SIZE))
"""A record without its fields: NumPy copies fields one by one, which takes ten times as long."""


def select_records(records: RecordArray, selected: SelectedRows) -> RecordArray:
    """Return some of the records."""
    return records.view(_OPAQUE_RECORD)[selected].view(records.dtype)


@dataclass(frozen=True, slots=True)
class JournalNames:
    """The names for the numbers in the records of a file.

    Attributes:
        instance: the instance of the journal.
        topics: the wanted topics, by number; entries of others are ignored.
        message_types: their message types, by the same numbers.
        users: the publishers, by the number of the origin; unknown ones are left out.
        kinds: the wanted kinds of entries.
    """

    instance: str
    topics: Mapping[int, str]
    message_types: Mapping[int, str]
    users: Mapping[int, str]
    kinds: frozenset[int]


@dataclass
class JournalPartition(InputPartition):
    """Consecutive entries of one file.

    Attributes:
        path: the file.
        archive: the directory where it may be otherwise.
        first_txid: the first txid of the file.
        count: the number of entries in the file.
        start: the number of the first entry of the partition in the file.
        stop: the number after the last one.
        size: the size of the file in bytes, decompressed.
        names: the names for its numbers.
        has_extras: whether entries may have correlation ids, or keys assigned by publishers.
        bounds: further predicates of the entries, besides those of the query.
    """

    path: Path
    archive: Path | None
    first_txid: int
    count: int
    start: int
    stop: int
    size: int
    names: JournalNames
    has_extras: bool
    bounds: tuple[ColumnPredicate, ...] = ()


@dataclass(slots=True)
class JournalBlock:
    """Entries that were read together.

    Attributes:
        path: their file.
        records: their records.
        names: the names for the numbers in them.
        data: the bytes that contain the bodies; empty if bodies are not requested.
        starts: the offsets of the bodies in `data`.
        lengths: the lengths of the bodies.
    """

    path: Path
    records: RecordArray
    names: JournalNames
    data: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def bodies(self) -> PackedBodies:
        """Return the bodies as a sequence."""
        return PackedBodies(self.data, self.starts, self.starts + self.lengths)

    def extras(self) -> Iterator[bytes]:
        """Yield the extras after each body."""
        ends = self.starts + self.lengths
        lengths = self.records["extras_length"]
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
            yield self.data[end : end + length]

    def message_type(self, number: int) -> str:
        """Return the message type of an entry."""
        return self.names.message_types[int(self.records["topic"][number])]

    def describe(self, number: int) -> str:
        """Describe an entry for an error."""
        record = self.records[number]
        return f"{self.path}: entry {record['txid']} of topic {self.names.topics[record['topic']]}"

    def by_message_type(self) -> Iterator[JournalBlock]:
        """Yield the entries, divided by message type."""
        kinds = set(self.names.message_types.values())
        if len(kinds) == 1:
            yield self
            return
        for kind in sorted(kinds):
            numbers = [number for number, name in self.names.message_types.items() if name == kind]
            part = self.select(np.isin(self.records["topic"], numbers))
            if len(part.records):
                yield part

    def select(self, selected: SelectedRows) -> JournalBlock:
        """Return a block with some of the entries."""
        return JournalBlock(
            self.path,
            select_records(self.records, selected),
            self.names,
            self.data,
            self.starts[selected] if len(self.starts) else self.starts,
            self.lengths[selected] if len(self.lengths) else self.lengths,
        )
