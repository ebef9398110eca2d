"""Many bodies at once: reading the same fields of them for columns, and deciding simple filters.

A type that does this faster than body by body has a `bulk_extractor` or a `bulk_decider`; these are
no part of `MessageType`, so that types from libraries need not have them. What they find is what
follows from what the type's `extractor` reads, whatever the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from server.message_types.base import MessageType, Value
from server.message_types.paths import Path

BulkExtractor: TypeAlias = Callable[[Sequence[bytes]], Sequence[Sequence[Value]]]
"""Reads bodies, at least one: for each path the values of all. Never raises."""


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
