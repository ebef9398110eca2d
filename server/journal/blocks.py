"""Blocks: entries that are appended together.

A run of publishes to one topic by one publisher differs in sequence numbers and bodies only, and
what comes from another instance is in columns already. So what entries have in common is said once,
and the rest in columns; `make_block` makes records of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, TypeAlias

from server.journal.errors import JournalUnavailable

Field: TypeAlias = int | Sequence[int]
"""What entries have in one field: all the same, or each its own."""


def each(field: Field, count: int) -> Iterable[int]:
    """A field of each of some entries."""
    return repeat(field, count) if isinstance(field, int) else field


def of_one(field: Field, place: int) -> int:
    """A field of one of some entries."""
    return field if isinstance(field, int) else field[place]


def part_of(field: Field, start: int, stop: int) -> Field:
    """A field of some of the entries, in a row."""
    return field if isinstance(field, int) else field[start:stop]


def made_of(field: Field, make: Callable[[int], int]) -> Field:
    """Another field, worked out of what each of some entries has in this one."""
    return make(field) if isinstance(field, int) else [make(one) for one in field]


class Content(NamedTuple):
    """What entries say. See `Entry` for the fields.

    Attributes:
        names: numbers of topic and origin; whoever appends them says what these stand for.
        clients: as the records have them.
        sequences: likewise.
        source_txids: likewise.
        source: likewise, of all.
        kinds: what the entries stand for.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: lifetimes in seconds, 0 for none.
        extras_length: bytes of extras behind each body.
        checksums: of bodies with extras; empty if they have not been computed yet.
        data: the bodies with extras.
    """

    names: Field
    clients: Field
    sequences: Field
    source_txids: Field
    source: int
    kinds: Field
    sow_keys: Field
    expirations: Field
    extras_length: Field
    checksums: Sequence[int]
    data: Sequence[bytes]

    def part(self, start: int, stop: int) -> Content:
        """Some of the entries, in a row."""
        if not start and stop == len(self.data):
            return self
        return Content(
            part_of(self.names, start, stop),
            part_of(self.clients, start, stop),
            part_of(self.sequences, start, stop),
            part_of(self.source_txids, start, stop),
            self.source,
            part_of(self.kinds, start, stop),
            part_of(self.sow_keys, start, stop),
            part_of(self.expirations, start, stop),
            part_of(self.extras_length, start, stop),
            self.checksums[start:stop],
            self.data[start:stop],
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where entries go that are appended together.

    Attributes:
        first_txid: of the first entry.
        timestamp: of all of them, in microseconds since the Unix epoch.
        bodies_end: offset in bytes of the first body in the file.
        topics: the topics' numbers in the file.
        origins: the origins' numbers in the file.
        durable: the last txid on stable storage.
    """

    first_txid: int
    timestamp: int
    bodies_end: int
    topics: Field
    origins: Field
    durable: int


class AppendedRun(NamedTuple):
    """How far a run has been appended in one step: its entries have one moment.

    Attributes:
        end: the position of the first entry that has not been appended; their number if all have.
        txids: of those that have been.
        timestamp: of these, in microseconds since the Unix epoch.
        problem: why that first one cannot be appended; None if it has not been tried.
        flags: as the records have them.
        checksums: of the bodies of those that have been, of publishes.
    """

    end: int
    txids: Sequence[int]
    timestamp: int
    problem: JournalUnavailable | None
    flags: Field = 0
    checksums: Sequence[int] = ()
