"""The order of query results: keys that sort as an OrderBy asks.

Source: AMPS User Guide, Managing Result Sets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from server.base.octets import Descending
from server.expressions import semantics
from server.expressions.tree import OrderTerm
from server.message_types.base import Value
from server.message_types.paths import Path

SortKey: TypeAlias = tuple[object, ...]


def _descending(value: Value) -> tuple[int, object]:
    rank, content = semantics.order_key(value)
    return -rank, Descending(content) if isinstance(content, bytes) else -content


class Ordering:
    """An OrderBy, compiled.

    Args:
        terms: its identifiers.

    Attributes:
        fields: the fields to read of each record.
    """

    def __init__(self, terms: Sequence[OrderTerm]) -> None:
        self.fields: Final[tuple[Path, ...]] = tuple(term.identifier.path for term in terms)
        self._keys: Final = tuple(
            _descending if term.descending else semantics.order_key for term in terms
        )

    def key(self, values: Sequence[Value]) -> SortKey:
        """What a record with these values sorts by."""
        return tuple(make(value) for make, value in zip(self._keys, values, strict=True))


class Placed(NamedTuple):
    """A row in an order; equal ones stay in the order of their rows."""

    key: SortKey
    row: int


class Ranking:
    """Rows in order, of which perhaps only the first are wanted.

    Args:
        limit: how many are wanted; None for all.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._runs: list[list[Placed]] = []
        self._gathered = 0

    def add(self, rows: list[Placed]) -> None:
        """Add some rows."""
        if self._limit is None or len(rows) <= self._limit:
            self._runs.append(sorted(rows))
        else:
            self._runs.append(heapq.nsmallest(self._limit, rows))
        self._gathered += len(self._runs[-1])
        if self._limit is not None and self._gathered > 4 * self._limit + 1000:
            self._runs = [heapq.nsmallest(self._limit, heapq.merge(*self._runs))]
            self._gathered = len(self._runs[0])

    def rows(self) -> Iterator[int]:
        """The rows in order, as far as they are wanted."""
        merged = heapq.merge(*self._runs)
        for number, placed in enumerate(merged):
            if number == self._limit:
                return
            yield placed.row
