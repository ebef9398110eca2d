"""Rows become groups, and groups the records of a view, in parallel.

Every task groups the rows of its own part of the input; what it keeps of a group is small, whatever
the number of rows. These partial groups are brought together by SOW key, merged, and made into
bodies. The accumulators are the server's, so that the result is the same to the last digit, in
whichever order tasks run: sums are exact, and the row that counts as the last one is that of the
last update.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from pipeline.views.definition import ViewDefinition
from pipeline.views.records import SCHEMA, batch_of, records_in
from server.expressions.context import NO_CONTEXT, MessageContext
from server.sow.record_context import context_of
from server.sow.records import Change, Record
from server.views.grouping import Group, Grouping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from server.views.projection import Row

_PARTIAL_SCHEMA: Final = "key string, partial binary, sequence long, timestamp long"
_PARTIAL: Final = pa.schema(
    [
        ("key", pa.string()),
        ("partial", pa.binary()),
        ("sequence", pa.int64()),
        ("timestamp", pa.int64()),
    ]
)
_MOST_GROUPS: Final = 50_000
"""Groups that a task keeps at once while it reads; then it passes them on as they are."""
_BATCH: Final = 5_000


class RowOfView(NamedTuple):
    """A row, and what is known of the update that made it.

    Attributes:
        row: the values.
        context: what expressions may ask about the message.
        sequence: the update's place in the order of updates.
        timestamp: when it was, in nanoseconds since 1970; 0 if that is not known.
    """

    row: Row
    context: MessageContext
    sequence: int
    timestamp: int


ReadRows: TypeAlias = Callable[[ViewDefinition, Iterable[pa.RecordBatch]], Iterator[RowOfView]]


def grouped(view: ViewDefinition, rows: DataFrame, read: ReadRows) -> DataFrame:
    """Group rows, and make each group a record.

    Args:
        view: the view.
        rows: what `read` makes rows of.
        read: runs in the workers; a function of a module.

    Returns:
        The view's records, see `records.SCHEMA`.
    """
    partials = rows.mapInArrow(_Partials(view, read), _PARTIAL_SCHEMA)
    together = partials.repartition("key").sortWithinPartitions("key", "sequence")
    return together.mapInArrow(_Merge(view), SCHEMA)


def rows_of_records(view: ViewDefinition, batches: Iterable[pa.RecordBatch]) -> Iterator[RowOfView]:
    """Rows of a view over one topic."""
    read = row_reader(view)
    for record in records_in(batches):
        found = read(record)
        if found is not None:
            yield RowOfView(*found, record.sequence, record.timestamp)


def row_reader(view: ViewDefinition) -> Callable[[Record], tuple[Row, MessageContext] | None]:
    """What makes rows of the records of a view's only topic.

    Args:
        view: the view.

    Returns:
        Gives the row of a record, and what expressions may ask about the message; None if the
        view's filter leaves the record out.
    """
    source = view.compiled.rows()
    projection = view.compiled.projection
    asks = projection.arguments_ask or projection.fields_ask

    def read(record: Record) -> tuple[Row, MessageContext] | None:
        ((_, row),) = source.changes(0, Change(record.key, record.topic, None, record))
        if row is None:
            return None
        return row, context_of(record) if asks else NO_CONTEXT

    return read


def rows_of_parts(view: ViewDefinition, batches: Iterable[pa.RecordBatch]) -> Iterator[RowOfView]:
    """Rows of a view over several topics, see `rows.joined_parts`."""
    topics = range(len(view.compiled.topics))
    nothing: list[Row] = [(None,) * len(view.compiled.inputs(place)) for place in topics]
    for batch in batches:
        parts = [batch.column(f"part_{place}").to_pylist() for place in topics]
        for sequence, *pickled in zip(batch.column("sequence").to_pylist(), *parts, strict=True):
            row: Row = ()
            for part, none in zip(pickled, nothing, strict=True):
                row += none if part is None else pickle.loads(part)  # noqa: S301 - made by `rows` in this very job
            yield RowOfView(row, NO_CONTEXT, sequence, 0)


class _Partials:
    """Groups the rows of a task."""

    def __init__(self, view: ViewDefinition, read: ReadRows) -> None:
        self._view = view
        self._read = read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read rows, and give partial groups."""
        projection = self._view.compiled.projection
        grouping = Grouping(projection, self._view.spec.key_domain)
        latest: dict[Group, tuple[int, int, Row, MessageContext]] = {}
        for one in self._read(self._view, batches):
            group = grouping.enter(one.row, one.context)
            last = latest.get(group)
            if last is None or one.sequence >= last[0]:
                latest[group] = one.sequence, one.timestamp, one.row, one.context
            if len(latest) >= _MOST_GROUPS:
                yield from _packed(latest)
                grouping = Grouping(projection, self._view.spec.key_domain)
                latest = {}
        yield from _packed(latest)


def _packed(
    latest: dict[Group, tuple[int, int, Row, MessageContext]],
) -> Iterator[pa.RecordBatch]:
    """Partial groups in batches."""
    groups = list(latest.items())
    for start in range(0, len(groups), _BATCH):
        keys, partials, sequences, timestamps = [], [], [], []
        for group, (sequence, timestamp, row, context) in groups[start : start + _BATCH]:
            group.last, group.context = row, context
            keys.append(group.sow_key)
            partials.append(pickle.dumps(group))
            sequences.append(sequence)
            timestamps.append(timestamp)
        yield pa.RecordBatch.from_pydict(
            {"key": keys, "partial": partials, "sequence": sequences, "timestamp": timestamps},
            schema=_PARTIAL,
        )


class _Merge:
    """Merges partial groups, which come ordered by key and sequence, and makes bodies of them."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read partial groups, and give records."""
        name, build = self._view.spec.name, self._view.message_type.build
        projection = self._view.compiled.projection
        waiting: list[Record] = []
        for group, sequence, timestamp in self._merged(batches):
            body = build(projection.values(group.last, group.accumulators, group.context))
            waiting.append(Record(group.sow_key, body, name, timestamp, 0, sequence))
            if len(waiting) >= _BATCH:
                yield batch_of(waiting)
                waiting = []
        yield batch_of(waiting)

    def _merged(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Group, int, int]]:
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
    """Add what an earlier part of a group holds to a later one."""
    group.rows += earlier.rows
    for accumulator, other in zip(group.accumulators, earlier.accumulators, strict=True):
        accumulator.merge(other)
