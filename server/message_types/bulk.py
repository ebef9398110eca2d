"""Batch interfaces of message types: read fields of many bodies into columns, or decide filters.

The fastest form creates no object for a body or a value: bodies are passed joined, and become
columns in their memory layout: that is what a `column_reader` does. A `bulk_extractor` reads many
bodies faster than one by one, a `bulk_decider` decides filters in this way, and a `bulk_selector`
applies a select list. A type that supports all of it is a `BulkMessageType`. `MessageType` has none
of them, so that types from libraries need not have them. For any bodies, their results agree with
the values that the type's `extractor` reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from server.message_types.base import MessageType, Value
from server.message_types.paths import Path
from server.message_types.select_list import FieldSelection

BulkExtractor: TypeAlias = Callable[[Sequence[bytes]], Sequence[Sequence[Value]]]
"""Reads bodies, at least one: for each path the values of all. Never raises."""


class JoinedBodies(NamedTuple):
    """Concatenated bodies, each followed by a NUL.

    Attributes:
        data: all bodies.
        ends: the end of each body, which is the offset of its NUL.
    """

    data: bytes
    ends: array[int]


class RawColumn(NamedTuple):
    """The values of one field in many bodies.

    Attributes:
        tags: for each row the kind of its value: 0 NULL, 1 an integer of 64 bits, 2 a double,
            4 a text, 8 any other value.
        numbers: for each row an integer of 64 bits, or a double; 0 if it is neither.
        offsets: for each row, in 32 bits, the begin of its text, which ends at the begin of the
            next.
        others: row -> value of any other kind.
        text: all texts, encoded.
    """

    tags: bytearray
    numbers: bytearray
    offsets: bytearray
    others: dict[int, Value]
    text: bytes


ColumnReader: TypeAlias = Callable[[Iterable[JoinedBodies], int], Sequence[RawColumn]]
"""Reads bodies, given their number, and returns a column for each path.

An empty body has no values.
"""


def join(bodies: Sequence[bytes]) -> JoinedBodies:
    """Join bodies."""
    ends = accumulate(bodies, lambda end, body: end + len(body) + 1, initial=-1)
    return JoinedBodies(b"\0".join((*bodies, b"")), array("q", list(ends)[1:]))


class LiteralTest(NamedTuple):
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

BulkDecider: TypeAlias = Callable[[Sequence[bytes]], Sequence[tuple[int, int, int]]]
"""Decides filters for bodies. Returns each range of bodies that match the same filters: its begin,
its end, and the filters as bits, the first one as the lowest; UNDECIDED if that is not known.
Bodies that no filter matches are left out. Never raises."""


BulkSelector: TypeAlias = Callable[[Sequence[bytes]], Sequence[bytes | None]]
"""Applies a select list to bodies; None for a body that is left to `MessageType.select`. Never
raises."""


MAX_BULK_FILTERS: Final = 60
"""Maximum number of filters that are decided together."""


@runtime_checkable
class BulkMessageType(Protocol):
    """A message type that reads many bodies at once."""

    def bulk_extractor(self, paths: Sequence[Path]) -> BulkExtractor:
        """Compile a function that reads `paths` from bodies; see `MessageType.extractor`."""

    def column_reader(self, paths: Sequence[Path]) -> ColumnReader | None:
        """Compile a function that reads `paths` from joined bodies into columns.

        Returns:
            None if it has none with these options.
        """

    def bulk_decider(self, filters: Sequence[Sequence[LiteralTest]]) -> BulkDecider | None:
        """Make a decider for filters, each of which is true if all its tests hold.

        Returns:
            None if bodies are better decided one by one.
        """

    def bulk_selector(self, selection: FieldSelection) -> BulkSelector:
        """Compile a function that applies a select list; see `MessageType.select`."""


def bulk_extractor(message_type: MessageType, paths: Sequence[Path]) -> BulkExtractor:
    """Compile a function that reads `paths` from many bodies of a type."""
    if isinstance(message_type, BulkMessageType):
        return message_type.bulk_extractor(paths)
    extract = message_type.extractor(paths)
    return lambda bodies: list(zip(*map(extract, bodies), strict=True))


def bulk_selector(message_type: MessageType, selection: FieldSelection) -> BulkSelector | None:
    """Compile a function that applies a select list to many bodies; None if a type has none."""
    # A type of a library may pass on attributes to another one, and have its own `select`:
    is_own = hasattr(type(message_type), "bulk_selector")
    if is_own and isinstance(message_type, BulkMessageType):
        return message_type.bulk_selector(selection)
    return None
