"""A piece of a journal, as planning cuts it, and a block of entries, as a task reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import InputPartition

from pipeline.journal.predicates import Predicate
from pipeline.packed import Bodies

Records = npt.NDArray[np.void]
"""Records as `server.journal.records.RECORD_TYPE` has them, or one column of theirs."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the numbers in the records of a file stand for.

    Attributes:
        instance: whose journal it is.
        topics: the topics that are wanted, by number; entries of others do not count.
        message_types: theirs, by the same numbers.
        users: who published, by the number of the origin; those who are not known are not in it.
        kinds: the kinds of entry that are wanted.
    """

    instance: str
    topics: Mapping[int, str]
    message_types: Mapping[int, str]
    users: Mapping[int, str]
    kinds: frozenset[int]


@dataclass
class Piece(InputPartition):
    """Consecutive entries of one file.

    Attributes:
        path: the file.
        archive: where it may be found otherwise.
        first_txid: of the file.
        count: entries in the file.
        start: the number of the first entry of the piece in the file.
        stop: the number behind the last one.
        size: of the file in bytes, decompressed.
        names: what its numbers stand for.
        has_extras: whether entries may have correlation ids, or keys that publishers gave.
        bounds: what entries have to meet beside what the query says.
    """

    path: Path
    archive: Path | None
    first_txid: int
    count: int
    start: int
    stop: int
    size: int
    names: Names
    has_extras: bool
    bounds: tuple[Predicate, ...] = ()


@dataclass(slots=True)
class Block:
    """Some entries, read together.

    Attributes:
        path: the file that they are in.
        records: theirs.
        names: what the numbers in them stand for.
        data: bytes among which the bodies are; none if bodies are not asked for.
        starts: where the bodies begin in `data`.
        lengths: how long they are.
    """

    path: Path
    records: Records
    names: Names
    data: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def bodies(self) -> Bodies:
        """The bodies, one by one."""
        return Bodies(self.data, self.starts, self.starts + self.lengths)

    def extras(self) -> Iterator[bytes]:
        """What stands behind each body."""
        ends = self.starts + self.lengths
        lengths = self.records["extras_length"]
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
            yield self.data[end : end + length]

    def message_type(self, number: int) -> str:
        """The message type of one of the entries."""
        return self.names.message_types[int(self.records["topic"][number])]

    def describe(self, number: int) -> str:
        """One of the entries, for an error."""
        record = self.records[number]
        return f"{self.path}: entry {record['txid']} of topic {self.names.topics[record['topic']]}"

    def by_message_type(self) -> Iterator[Block]:
        """The entries, apart by message type."""
        kinds = set(self.names.message_types.values())
        if len(kinds) == 1:
            yield self
            return
        for kind in sorted(kinds):
            numbers = [one for one, name in self.names.message_types.items() if name == kind]
            part = self.only(np.isin(self.records["topic"], numbers))
            if len(part.records):
                yield part

    def only(self, chosen: npt.NDArray[np.bool_ | np.signedinteger[Any]] | list[int]) -> Block:
        """Some of the entries.

        Args:
            chosen: which, as numbers or as a mask.
        """
        return Block(
            self.path,
            self.records[chosen],
            self.names,
            self.data,
            self.starts[chosen] if len(self.starts) else self.starts,
            self.lengths[chosen] if len(self.lengths) else self.lengths,
        )
