"""What there is of a key, so short that two instances can tell each other.

The state of a key is that of its record: a digest of the body, and the name of the message that it
comes from. A survey of all records is a sum of digests for each of `RANGES` ranges of keys, and
that is all that is sent of records in which two instances agree.

Digests are made when somebody asks, from what is stored: that costs less than keeping sums up with
each change, nothing where nobody compares, and finds what has become of records in their files.
They tell accidents apart and are no protection against somebody who makes two bodies alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

RANGES: Final = 4096
"""Ranges of keys, by the highest bits of a digest of the key."""

_SHIFT: Final = 64 - RANGES.bit_length() + 1
_U64: Final = np.dtype("<u8")


class State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What there is of a key.

    Attributes:
        digest: of key and body; 0 if there is no record.
        client: the identity of the publisher whose message the record is; 0 if that is not known.
        sequence: the number of that message.
        ages: whether the record has an end, so that each instance removes it by its own clock.
    """

    digest: int = 0
    client: int = 0
    sequence: int = 0
    ages: bool = False


class Portion(NamedTuple):
    """Some records.

    Attributes:
        identities: what tells them from all others of their topic.
        bodies: what they are.
        place: where to go on; None if there are no more.
    """

    identities: Sequence[str]
    bodies: Sequence[bytes]
    place: int | None


class Records(Protocol):
    """The records of a topic, as far as they are replicated."""

    def portion(self, place: int) -> Portion:
        """Some records from a place on, as many as can be read in a small slice of time.

        Records may change between two portions. Those that are there all the time are in one of
        them, once.
        """

    def state(self, identity: str) -> State:
        """What there is of one key now."""


def digest_of(identity: str, body: bytes) -> int:
    """The digest of a record."""
    return xxh3_64_intdigest(body, _key_digest(identity)) or 1


def range_of(identity: str) -> int:
    """The number of the range that a key is in."""
    return _key_digest(identity) >> _SHIFT


def _key_digest(identity: str) -> int:
    return xxh3_64_intdigest(identity.encode("utf-8", "surrogatepass"))


class Survey:
    """The sums of all ranges.

    Attributes:
        records: how many there were.
        sums: for each range the sum of the digests of its records, modulo 2**64.
    """

    def __init__(self) -> None:
        self.records = 0
        self.sums: NDArray[np.uint64] = np.zeros(RANGES, _U64)

    def add(self, portion: Portion) -> None:
        """Take in some records."""
        keys = [xxh3_64_intdigest(one.encode("utf-8", "surrogatepass")) for one in portion[0]]
        digests = [one or 1 for one in map(xxh3_64_intdigest, portion.bodies, keys)]
        places = np.array(keys, _U64) >> np.uint64(_SHIFT)
        np.add.at(self.sums, places, np.array(digests, _U64))
        self.records += len(keys)

    def pack(self) -> bytes:
        """The sums as bytes."""
        return self.sums.tobytes()

    def differing(self, packed: bytes) -> list[int]:
        """The numbers of the ranges whose sums are not those of another survey.

        Raises:
            ValueError: that is no survey.
        """
        if len(packed) != RANGES * _U64.itemsize:
            raise ValueError(f"a survey of {len(packed)} bytes")
        found: list[int] = np.flatnonzero(self.sums != np.frombuffer(packed, _U64)).tolist()
        return found


def survey(records: Records) -> Iterator[Survey | None]:
    """Make a survey; gives None after each portion, and the survey at the end."""
    made = Survey()
    for portion in portions(records):
        made.add(portion)
        yield None
    yield made


def portions(records: Records) -> Iterator[Portion]:
    """All records, in portions."""
    place: int | None = 0
    while place is not None:
        portion = records.portion(place)
        yield portion
        place = portion.place


def within(portion: Portion, ranges: Collection[int]) -> Iterator[tuple[str, bytes]]:
    """Those records of a portion that are in some ranges."""
    for identity, body in zip(portion.identities, portion.bodies, strict=True):
        if range_of(identity) in ranges:
            yield identity, body
