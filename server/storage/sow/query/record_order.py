"""The order of query results: keys that sort according to an OrderBy.

Source: AMPS User Guide, Managing Result Sets.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from server.expressions import semantics
from server.expressions.tree import OrderTerm
from server.message_types.base import MessageType, Value
from server.message_types.paths import Path
from server.util.encoding import DescendingBytes

SortKey: TypeAlias = tuple[object, ...]
_SortKeyPart: TypeAlias = tuple[int, int | float | bytes]
SortRow: TypeAlias = tuple[SortKey, int]
"""A row in an order: its sort key, and its number, which breaks ties.

Plain tuples, as runs of them are: unlike instances of classes, the garbage collector stops
tracking them after a few collections, unless a text sorts downwards. Tracking took a quarter of
the time of a large query.
"""

_MAX_TOP_ROWS: Final = 1000
"""Limit of requested rows up to which all others are dropped, which takes as long as a sort."""
_SORT_RUN_ROWS: Final = 1000
"""Rows that are sorted at once (1.5 ms): the more rows, the fewer sorted runs to merge."""
_RELEASE_BATCH_SIZE: Final = 10
"""Runs of rows that are freed per slice."""


def _inferred_key(value: Value) -> _SortKeyPart:
    return semantics.order_key(semantics.identity_key(value))


def _descending(key: Callable[[Value], _SortKeyPart]) -> Callable[[Value], SortKey]:
    def descending(value: Value) -> SortKey:
        rank, content = key(value)
        return -rank, DescendingBytes(content) if isinstance(content, bytes) else -content

    return descending


class RecordOrder:
    """An OrderBy, compiled.

    Args:
        terms: the identifiers.
        message_type: the type of the records' bodies. If it leaves the types of values open, texts
            that are numbers are sorted as these.

    Attributes:
        fields: the fields to read of each record.
    """

    def __init__(self, terms: Sequence[OrderTerm], message_type: MessageType) -> None:
        self.fields: Final[tuple[Path, ...]] = tuple(term.identifier.path for term in terms)
        key = semantics.order_key if message_type.capabilities.typed else _inferred_key
        self._keys: Final = tuple(_descending(key) if term.is_descending else key for term in terms)

    def sort_key(self, values: Sequence[Value]) -> SortKey:
        """Return the sort key of a record with these values."""
        return tuple([key(value) for key, value in zip(self._keys, values, strict=True)])

    def make_sort_rows(
        self, rows: Iterable[Sequence[Value]], numbers: Iterable[int]
    ) -> list[SortRow]:
        """Return rows with their sort keys.

        Args:
            rows: for each record, the values of the fields.
            numbers: their numbers; records with equal sort keys are in this order.
        """
        return list(zip(map(self.sort_key, rows), numbers, strict=True))


class RowSorter:
    """Sorts rows, of which perhaps only some are returned.

    Args:
        start: the number of rows to skip first.
        stop: the number of rows to skip or return, None for all.
    """

    def __init__(self, start: int, stop: int | None) -> None:
        self._start = start
        self._stop = stop
        self._limit = stop if stop is not None and stop <= _MAX_TOP_ROWS else None
        self._unsorted: list[SortRow] = []
        self._sorted_runs: list[tuple[SortRow, ...]] = []
        self._sorted_count = 0

    def add(self, rows: list[SortRow]) -> None:
        """Add some rows."""
        self._unsorted += rows
        if len(self._unsorted) >= _SORT_RUN_ROWS:
            self._sort()

    def _sort(self) -> None:
        rows, self._unsorted = self._unsorted, []
        if self._limit is None or len(rows) <= self._limit:
            self._sorted_runs.append(tuple(sorted(rows)))
        else:
            self._sorted_runs.append(tuple(heapq.nsmallest(self._limit, rows)))
        self._sorted_count += len(self._sorted_runs[-1])
        if self._limit is not None and self._sorted_count > 4 * self._limit + 1000:
            self._sorted_runs = [
                tuple(heapq.nsmallest(self._limit, heapq.merge(*self._sorted_runs)))
            ]
            self._sorted_count = len(self._sorted_runs[0])

    def slices(self, size: int) -> Iterator[list[int]]:
        """Yield the requested rows in order; skipped rows yield empty slices.

        Frees the sorted runs after the last row, a few per slice.

        Args:
            size: the maximum number of rows in a slice.
        """
        self._sort()
        merged = islice(heapq.merge(*self._sorted_runs), self._stop)
        for skipped in range(0, self._start, size):
            deque(islice(merged, min(size, self._start - skipped)), maxlen=0)
            yield []
        while batch := [row for _, row in islice(merged, size)]:
            yield batch
        while len(self._sorted_runs) > _RELEASE_BATCH_SIZE:
            del self._sorted_runs[-_RELEASE_BATCH_SIZE:]
            yield []
