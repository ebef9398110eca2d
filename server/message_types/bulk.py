"""Reading the same fields of many bodies at once, for columns.

The fastest way makes no object of a body, nor of a value: bodies come joined, and become columns as
they are laid out in memory. A type that can do that has a `column_reader`. One that reads many
bodies faster than body by body has a `bulk_extractor`. Neither is a part of `MessageType`, so that
types from libraries need not have them. What they read is what the type's `extractor` reads,
whatever the bodies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

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
