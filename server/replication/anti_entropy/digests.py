"""Digests of records, so short that two instances can compare all of them.

The state of a key is that of its record: a digest of the body, and the bookmark of its message.
`RangeDigests` of all records are a sum of digests for each of `RANGES` ranges of keys. Of records
that agree at both instances, nothing but these sums is sent.

Digests are computed on request, from the stored records: that costs less than updating sums with
each change, costs nothing where no comparison runs, and detects damage to records in their files.
They detect accidental differences, and give no protection against an attacker that forges two
bodies with one digest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from server.util.peer_struct import PeerStruct

RANGES: Final = 4096
"""Ranges of keys, by the highest bits of a digest of the key."""

_SHIFT: Final = 64 - RANGES.bit_length() + 1
_U64: Final = np.dtype("<u8")


class RecordState(PeerStruct, frozen=True):
    """The state of a key at one instance.

    Attributes:
        digest: of key and body; 0 if there is no record.
        client: the identity of the record's publisher; 0 if that is not known.
        sequence: the number of that message.
        ages: whether the record expires, so that each instance removes it by its own clock.
    """

    digest: int = 0
    client: int = 0
    sequence: int = 0
    ages: bool = False


class RecordPortion(NamedTuple):
    """Some records.

    Attributes:
        keys: their keys within the topic.
        bodies: their bodies.
        next_position: the position to continue at; None if there are no more.
    """

    keys: Sequence[str]
    bodies: Sequence[bytes]
    next_position: int | None


class ComparableRecords(Protocol):
    """The replicated records of a topic."""

    def read_portion(self, position: int) -> RecordPortion:
        """Return some records from a position on, as many as can be read in a small time slice.

        Records may change between two portions. A record that exists all the time is in exactly one
        of them.
        """

    def record_state(self, identity: str) -> RecordState:
        """Return the present state of one key."""


def digest_of(identity: str, body: bytes) -> int:
    """Return the digest of a record; never 0, which stands for no record."""
    return xxh3_64_intdigest(body, _key_digest(identity)) or 1


def range_of(identity: str) -> int:
    """Return the number of the range that a key is in."""
    return _key_digest(identity) >> _SHIFT


def _key_digest(identity: str) -> int:
    return xxh3_64_intdigest(identity.encode("utf-8", "surrogatepass"))


class RangeDigests:
    """The sums of all ranges.

    Attributes:
        record_count: number of records.
        sums: for each range the sum of the digests of its records, modulo 2**64.
    """

    def __init__(self) -> None:
        self.record_count = 0
        self.sums: NDArray[np.uint64] = np.zeros(RANGES, _U64)

    def add(self, portion: RecordPortion) -> None:
        """Add some records."""
        keys = [xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")) for key in portion[0]]
        digests = [key or 1 for key in map(xxh3_64_intdigest, portion.bodies, keys)]
        ranges = np.array(keys, _U64) >> np.uint64(_SHIFT)
        np.add.at(self.sums, ranges, np.array(digests, _U64))
        self.record_count += len(keys)

    def pack(self) -> bytes:
        """Return the sums as bytes."""
        return self.sums.tobytes()

    def differing_ranges(self, packed: bytes) -> list[int]:
        """Return the numbers of the ranges with sums that differ from those of other digests.

        Raises:
            ValueError: the bytes are not packed digests.
        """
        if len(packed) != RANGES * _U64.itemsize:
            raise ValueError(f"a survey of {len(packed)} bytes")
        ranges: list[int] = np.flatnonzero(self.sums != np.frombuffer(packed, _U64)).tolist()
        return ranges


def make_range_digests(records: ComparableRecords) -> Iterator[RangeDigests | None]:
    """Compute the digests; yield None after each portion, and the digests at the end."""
    digests = RangeDigests()
    for portion in portions(records):
        digests.add(portion)
        yield None
    yield digests


def portions(records: ComparableRecords) -> Iterator[RecordPortion]:
    """Yield all records, in portions."""
    next_position: int | None = 0
    while next_position is not None:
        portion = records.read_portion(next_position)
        yield portion
        next_position = portion.next_position


def within(portion: RecordPortion, ranges: Collection[int]) -> Iterator[tuple[str, bytes]]:
    """Yield those records of a portion that are in some ranges."""
    for identity, body in zip(portion.keys, portion.bodies, strict=True):
        if range_of(identity) in ranges:
            yield identity, body
