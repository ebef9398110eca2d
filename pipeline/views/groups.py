"""Groups rows, and builds the records of a view from the groups, in parallel.

Every task groups the rows of its own part of the input; the partial group is small for any
number of rows. These partial groups are collected by SOW key, merged, and built into bodies. The
accumulators are the server's, so that the result is the same to the last digit, in any order of
tasks: sums are exact, and the last row is that of the last update.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from pipeline.views.definition import ViewDefinition
from pipeline.views.records import SCHEMA, batch_of, records_in
from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.storage.sow.record_context import context_of
from server.storage.sow.records import Record, RecordChange
from server.storage.views.groups import Group, GroupTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from server.storage.views.projection import ProjectionRow

_PARTIAL_SCHEMA: Final = "key string, partial binary, sequence long, timestamp long"
_PARTIAL: Final = pa.schema(
    [
        ("key", pa.string()),
        ("partial", pa.binary()),
        ("sequence", pa.int64()),
        ("timestamp", pa.int64()),
    ]
)
_MAX_GROUPS: Final = 50_000
"""Groups that a task holds while it reads; beyond that it passes them on as they are."""
_BATCH_SIZE: Final = 5_000


class ViewRow(NamedTuple):
    """A row, and the update that caused it.

    Attributes:
        row: the values.
        context: the message context for expressions.
        sequence: the position of the update in the order of updates.
        timestamp: the time of the update, in nanoseconds since 1970; 0 if unknown.
    """

    row: ProjectionRow
    context: MessageContext
    sequence: int
    timestamp: int


ReadRows: TypeAlias = Callable[[ViewDefinition, Iterable[pa.RecordBatch]], Iterator[ViewRow]]


def grouped(view: ViewDefinition, rows: DataFrame, read: ReadRows) -> DataFrame:
    """Group rows, and build a record from each group.

    Args:
        view: the view.
        rows: the input of `read`.
        read: reads rows in the workers; a module-level function.

    Returns:
        The view's records; see `records.SCHEMA`.
    """
    partials = rows.mapInArrow(_PartialGroups(view, read), _PARTIAL_SCHEMA)
    together = partials.repartition("key").sortWithinPartitions("key", "sequence")
    return together.mapInArrow(_GroupMerge(view), SCHEMA)


def rows_of_records(view: ViewDefinition, batches: Iterable[pa.RecordBatch]) -> Iterator[ViewRow]:
    """Yield the rows of a view over one topic."""
    read = row_reader(view)
    for record in records_in(batches):
        row_and_context = read(record)
        if row_and_context is not None:
            yield ViewRow(*row_and_context, record.sequence, record.timestamp)


def row_reader(
    view: ViewDefinition,
) -> Callable[[Record], tuple[ProjectionRow, MessageContext] | None]:
    """Return a function that converts records of a view's only topic to rows.

    Args:
        view: the view.

    Returns:
        A function that returns the row of a record, and the message context for expressions; None
        if the view's filter excludes the record.
    """
    source = view.compiled.make_row_source()
    projection = view.compiled.projection
    asks = projection.arguments_need_context or projection.fields_need_context

    def read(record: Record) -> tuple[ProjectionRow, MessageContext] | None:
        ((_, row),) = source.row_changes(0, RecordChange(record.key, record.topic, None, record))
        if row is None:
            return None
        return row, context_of(record) if asks else NO_CONTEXT

    return read


def rows_of_parts(view: ViewDefinition, batches: Iterable[pa.RecordBatch]) -> Iterator[ViewRow]:
    """Yield the rows of a view over several topics; see `rows.join_parts`."""
    topics = range(len(view.compiled.topics))
    nothing: list[ProjectionRow] = [
        (None,) * len(view.compiled.topic_inputs(place)) for place in topics
    ]
    for batch in batches:
        parts = [batch.column(f"part_{place}").to_pylist() for place in topics]
        for sequence, *pickled in zip(batch.column("sequence").to_pylist(), *parts, strict=True):
            row: ProjectionRow = ()
            for part, none in zip(pickled, nothing, strict=True):
                row += none if part is None else pickle.loads(part)  # noqa: S301 - made by `rows` in this very job
            yield ViewRow(row, NO_CONTEXT, sequence, 0)


class _PartialGroups:
    """Groups the rows of a task."""

    def __init__(self, view: ViewDefinition, read_rows: ReadRows) -> None:
        self._view = view
        self._read_rows = read_rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read rows, and yield partial groups."""
        projection = self._view.compiled.projection
        grouping = GroupTable(projection, self._view.spec.key_domain)
        latest: dict[Group, tuple[int, int, ProjectionRow, MessageContext]] = {}
        for view_row in self._read_rows(self._view, batches):
            group = grouping.add_row(view_row.row, view_row.context)
            last = latest.get(group)
            if last is None or view_row.sequence >= last[0]:
                latest[group] = (
                    view_row.sequence,
                    view_row.timestamp,
                    view_row.row,
                    view_row.context,
                )
            if len(latest) >= _MAX_GROUPS:
                yield from _packed(latest)
                grouping = GroupTable(projection, self._view.spec.key_domain)
                latest = {}
        yield from _packed(latest)


def _packed(
    latest: dict[Group, tuple[int, int, ProjectionRow, MessageContext]],
) -> Iterator[pa.RecordBatch]:
    """Yield partial groups in batches."""
    groups = list(latest.items())
    for start in range(0, len(groups), _BATCH_SIZE):
        keys, partials, sequences, timestamps = [], [], [], []
        for group, (sequence, timestamp, row, context) in groups[start : start + _BATCH_SIZE]:
            group.latest_row, group.latest_context = row, context
            keys.append(group.sow_key)
            partials.append(pickle.dumps(group))
            sequences.append(sequence)
            timestamps.append(timestamp)
        yield pa.RecordBatch.from_pydict(
            {"key": keys, "partial": partials, "sequence": sequences, "timestamp": timestamps},
            schema=_PARTIAL,
        )


class _GroupMerge:
    """Merges partial groups, ordered by key and sequence, and builds bodies from them."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read partial groups, and yield records."""
        name, build = self._view.spec.name, self._view.message_type.build
        projection = self._view.compiled.projection
        pending: list[Record] = []
        for group, sequence, timestamp in self._merge_batches(batches):
            body = build(
                projection.compute_fields(
                    group.latest_row, group.accumulators, group.latest_context
                )
            )
            pending.append(Record(group.sow_key, body, name, timestamp, 0, sequence))
            if len(pending) >= _BATCH_SIZE:
                yield batch_of(pending)
                pending = []
        yield batch_of(pending)

    def _merge_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Group, int, int]]:
        merged: tuple[Group, int, int] | None = None
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in _PARTIAL.names]
            for key, partial, sequence, timestamp in zip(*columns, strict=True):
                group: Group = pickle.loads(partial)  # noqa: S301 - made by `_packed` in this very job
                if merged is not None and merged[0].sow_key == key:
                    _take_in(group, merged[0])
                elif merged is not None:
                    yield merged
                merged = group, sequence, timestamp
        if merged is not None:
            yield merged


def _take_in(group: Group, earlier: Group) -> None:
    """Merge an earlier part of a group into a later one."""
    group.row_count += earlier.row_count
    for accumulator, other in zip(group.accumulators, earlier.accumulators, strict=True):
        accumulator.merge(other)
