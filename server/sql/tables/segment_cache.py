"""The segments that are kept in memory for further queries, and when fields are worth it.

A table without changes since the last query is read without looking at any block:
the cache keeps the columns of the blocks of that moment. Segments of which columns have changed are
made anew, the others are used further (`SegmentField.is_of`).

Columns are made for a query that reads all records. A query with a condition reads few, so that
parsing their bodies costs less at first; the records that are parsed so are counted, and when they
are `_PARSED_PART` of the table, the next query makes the columns.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from server.sql.tables.column_segments import SegmentField

if TYPE_CHECKING:
    from server.expressions.backends.columns import Column
    from server.message_types.paths import Path
    from server.storage.sow.record_table import RecordTable

MAX_CACHED_BYTES: Final = 256 * 1024 * 1024
"""The memory of the segments of an instance, beyond which no others are kept."""

_IDLE_TIMEOUT_S: Final = 60.0
"""The time after which segments that no query has read are dropped."""

_PARSED_PART: Final = 1 / 16

_BlockColumns: TypeAlias = Sequence[Sequence["Column"]]
"""The columns of the blocks of each segment, of one field."""


class TableState(NamedTuple):
    """Numbers of a table that change with its records.

    Attributes:
        last_sequence: the sequence of the last change.
        records: the number of records.
        updates: the number of updates.
        deletes: the number of deletions.
    """

    last_sequence: int
    records: int
    updates: int
    deletes: int


def state_of(table: RecordTable) -> TableState:
    """Return the state of a table."""
    return TableState(table.store.last_sequence, len(table), table.updates, table.deletes)


class _FieldSegments:
    """The segments of a field, by number; None where there is none."""

    def __init__(self) -> None:
        self.segments: list[SegmentField | None] = []
        self.used_s = 0.0

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments if segment is not None)


class TopicSegments:
    """The segments of one topic.

    Columns are noted and found by the engine's thread, segments by threads of queries.
    """

    def __init__(self, cache: SegmentCache) -> None:
        self._cache: Final = cache
        self._parsed: Counter[Path] = Counter()
        self._state: TableState | None = None
        self._row_mask: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._columns: dict[Path, _BlockColumns] = {}
        self.fields: Final[dict[Path, _FieldSegments]] = {}

    # ---- on the engine's thread

    def find_columns(
        self, state: TableState, row_mask: NDArray[np.bool_], paths: Sequence[Path]
    ) -> list[_BlockColumns] | None:
        """Return the columns of fields, if they have been noted for the same records; else None."""
        columns = self._columns
        if state != self._state or not np.array_equal(row_mask, self._row_mask):
            return None
        if any(path not in columns for path in paths):
            return None
        return [columns[path] for path in paths]

    def note_columns(
        self,
        state: TableState,
        row_mask: NDArray[np.bool_],
        paths: Sequence[Path],
        columns: Sequence[_BlockColumns],
    ) -> None:
        """Note the columns of fields, for queries of the same records."""
        if state != self._state or not np.array_equal(row_mask, self._row_mask):
            self._columns = {}
            self._state = state
            self._row_mask = row_mask
        self._columns = {**self._columns, **dict(zip(paths, columns, strict=True))}

    def count_parsed(self, paths: Iterable[Path], records: int) -> None:
        """Count records of which some fields have been parsed."""
        for path in paths:
            self._parsed[path] += records

    def is_worth(self, paths: Iterable[Path], records: int) -> bool:
        """Return whether so many records of fields have been parsed that columns cost less."""
        return all(self._parsed[path] >= records * _PARSED_PART for path in paths)

    # ---- on threads of queries

    def find_field(self, path: Path, number: int, blocks: Sequence[Column]) -> SegmentField:
        """Return a field of a segment, for the columns of its blocks."""
        field = self.fields.get(path)
        segments = () if field is None else field.segments
        if number < len(segments):
            segment = segments[number]
            if segment is not None and segment.is_of(blocks):
                return segment
        similar = next((one for one in segments if one is not None), None)
        segment = SegmentField(blocks, similar)
        self._cache.keep(self, path, number, segment)
        return segment

    def note_use(self, paths: Iterable[Path]) -> None:
        """Note that a query has read fields."""
        now = time.monotonic()
        for path in paths:
            field = self.fields.get(path)
            if field is not None:
                field.used_s = now

    def drop_unused(self, before_s: float) -> int:
        """Drop fields that no query has read since some time; return their bytes."""
        unused = [path for path, field in self.fields.items() if field.used_s < before_s]
        dropped = sum(self.fields.pop(path).size_bytes for path in unused)
        self._columns = {
            path: columns for path, columns in self._columns.items() if path in self.fields
        }
        return dropped


class SegmentCache:
    """The segments of an instance."""

    def __init__(self) -> None:
        self._topics: dict[int, TopicSegments] = {}
        self._lock: Final = threading.Lock()
        self._timer: threading.Timer | None = None
        self._size_bytes = 0
        self._is_closed = False

    def topic(self, table: RecordTable) -> TopicSegments:
        """Return the segments of a topic, given its records, which stay as long as the instance."""
        topic = self._topics.get(id(table))
        if topic is None:
            topic = self._topics[id(table)] = TopicSegments(self)
        return topic

    def close(self) -> None:
        """Drop all segments."""
        with self._lock:
            self._is_closed = True
            self._topics.clear()
            if self._timer is not None:
                self._timer.cancel()

    def keep(self, topic: TopicSegments, path: Path, number: int, segment: SegmentField) -> None:
        """Keep a segment of a field for further queries, unless there are too many."""
        with self._lock:
            if self._is_closed:
                return
            field = topic.fields.get(path)
            if field is None:
                field = topic.fields[path] = _FieldSegments()
            field.used_s = time.monotonic()
            field.segments += [None] * (number + 1 - len(field.segments))
            previous = field.segments[number]
            self._size_bytes -= 0 if previous is None else previous.size_bytes
            is_kept = self._size_bytes + segment.size_bytes <= MAX_CACHED_BYTES
            self._size_bytes += segment.size_bytes if is_kept else 0
            field.segments[number] = segment if is_kept else None
            if self._timer is None:
                self._start_timer()

    def _start_timer(self) -> None:
        self._timer = threading.Timer(_IDLE_TIMEOUT_S, self._drop_unused)
        self._timer.daemon = True
        self._timer.start()

    def _drop_unused(self) -> None:
        """Drop the segments that no query has read for some time."""
        with self._lock:
            self._timer = None
            for topic in self._topics.values():
                self._size_bytes -= topic.drop_unused(time.monotonic() - _IDLE_TIMEOUT_S)
            if any(topic.fields for topic in self._topics.values()) and not self._is_closed:
                self._start_timer()
