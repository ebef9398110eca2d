"""Many bodies at once: reading the same fields of them for columns, and deciding simple filters.

The fastest way makes no object of a body, nor of a value: bodies come joined, and become columns as
they are laid out in memory. A type that can do that has a `column_reader`. One that reads many
bodies faster than body by body has a `bulk_extractor`, and one that decides filters so has a
`bulk_decider`. None of these is a part of `MessageType`, so that types from libraries need not have
them. What they find is what follows from what the type's `extractor` reads, whatever the bodies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from server.message_types.base import MessageType, Value
from server.message_types.paths import Path

BulkExtractor: TypeAlias = Callable[[Sequence[bytes]], Sequence[Sequence[Value]]]
"""Reads bodies, at least one: for each path the values of all. Never raises."""


class JoinedBodies(NamedTuple):
    """Bodies one behind the other, each followed by a NUL.

    Attributes:
        data: all of them.
        ends: where each ends, which is where its NUL is.
    """

    data: bytes
    ends: array[int]


class RawColumn(NamedTuple):
    """The values of one field in many bodies.

    Attributes:
        tags: for each row what its value is: 0 NULL, 1 an integer of 64 bits, 2 a double, 4 a text,
            8 something else.
        numbers: for each row an integer of 64 bits, or a double; 0 if it is neither.
        offsets: 32 bits for each row: where its text begins, which ends where the next begins.
        others: row -> value that is something else.
        text: all texts, encoded.
    """

    tags: bytearray
    numbers: bytearray
    offsets: bytearray
    others: dict[int, Value]
    text: bytes


ColumnReader: TypeAlias = Callable[[Iterable[JoinedBodies], int], Sequence[RawColumn]]
"""Reads bodies, of which it is told how many there are: for each path a column.

An empty body has no values.
"""


def join(bodies: Sequence[bytes]) -> JoinedBodies:
    """Join bodies."""
    ends = accumulate(bodies, lambda end, body: end + len(body) + 1, initial=-1)
    return JoinedBodies(b"\0".join((*bodies, b"")), array("q", list(ends)[1:]))


@runtime_checkable
class ReadsColumns(Protocol):
    """A message type that reads joined bodies into columns."""

    def column_reader(self, paths: Sequence[Path]) -> ColumnReader | None:
        """Compile a function that reads `paths`; None if it has none with these options."""


@runtime_checkable
class ReadsInBulk(Protocol):
    """A message type that reads many bodies at once."""

    def bulk_extractor(self, paths: Sequence[Path]) -> BulkExtractor:
        """Compile a function that reads `paths` from bodies; see `MessageType.extractor`."""


def bulk_extractor(message_type: MessageType, paths: Sequence[Path]) -> BulkExtractor:
    """Compile a function that reads `paths` from many bodies of a type."""
    if isinstance(message_type, ReadsInBulk):
        return message_type.bulk_extractor(paths)
    extract = message_type.extractor(paths)
    return lambda bodies: list(zip(*map(extract, bodies), strict=True))


class PlainTest(NamedTuple):
    """A test of a field against literals, in which no value is NULL.

    Attributes:
        path: the field.
        operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, or `IN` or `NOT IN` for one or none of them.
        literals: texts of ASCII, not empty, or numbers of a magnitude below 2^53.
    """

    path: Path
    operator: str
    literals: Sequence[float | str]


UNDECIDED: Final = -1

Decider: TypeAlias = Callable[[Sequence[bytes]], Sequence[tuple[int, int, int]]]
"""Decides filters for bodies: gives those in a row that the same filters match, as their begin,
their end, and the filters as bits, the first one as the lowest; UNDECIDED where that is not known.
Bodies that no filter matches are left out. Never raises."""


@runtime_checkable
class DecidesInBulk(Protocol):
    """A message type that decides filters for many bodies at once."""

    def bulk_decider(self, filters: Sequence[Sequence[PlainTest]]) -> Decider | None:
        """Make what decides some filters, each of which demands that all its tests hold.

        Returns:
            None if bodies are better decided one by one.
        """


MOST_DECIDED: Final = 60
"""Filters that can be decided together."""
