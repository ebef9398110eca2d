"""Converts changes of records to rows, on worker threads.

Rows of the snapshot and of changes are made in the same way from the body, and a value does not
depend on the others of its batch. So a row with `_diff` -1 has exactly the values of an earlier one
with 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from server.sql.postgres.types import ResultColumn
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import to_text
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.metadata_arrays import BODY_METADATA, to_metadata_arrays
from server.sql.tables.row_conversion import body_reader, read_fields
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, to_nanoseconds

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.sql.live.feed import Change
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.live_evaluation import LiveEvaluation
    from server.sql.query.live_terms import LivePlan, LiveTerms
    from server.sql.tables.row_chunk import RowChunk
    from server.sql.tables.scan import ScanPlan

_BATCH_SIZE: Final = 2048
"""Changes that become rows at once."""

_TIME: Final = ("_time", SqlType.TIMESTAMPTZ)
_PROGRESSED: Final = ("_progressed", SqlType.BOOLEAN)
_DIFF: Final = ("_diff", SqlType.BIGINT)


class ChangeConverter:
    """Converts the changes of one topic.

    Args:
        message_type: parses bodies.
        outputs: the columns of the topic, one for each of `names`.
        names: their names in the result.
        has_progress: whether there is a column that tells rows of progress.

    Attributes:
        columns: the columns of the rows.
    """

    def __init__(
        self,
        message_type: MessageType,
        outputs: Sequence[FieldColumn | Metadata],
        names: Sequence[str],
        *,
        has_progress: bool,
    ) -> None:
        self._outputs: Final = tuple(outputs)
        self._has_progress: Final = has_progress
        own = [_TIME, *([_PROGRESSED] if has_progress else []), _DIFF]
        kinds = [
            *own,
            *((name, _type_of(output)) for name, output in zip(names, outputs, strict=True)),
        ]
        self.columns: Final = tuple(ResultColumn(name, kind.oid) for name, kind in kinds)
        self._names: Final = [name for name, _ in kinds]
        self._types: Final = [kind.arrow_type for _, kind in kinds]
        fields = [output for output in outputs if isinstance(output, FieldColumn)]
        self._fields: Final = tuple({field.path: field for field in fields}.values())
        self._metadata: Final = tuple(
            dict.fromkeys(output for output in outputs if isinstance(output, Metadata))
        )
        paths = [field.path for field in self._fields]
        self._read_bodies: Final = body_reader(message_type, paths) if paths else None

    def convert_changes(self, changes: Sequence[Change]) -> pa.RecordBatch:
        """Return the rows of changes.

        Raises:
            MisfitError: a value does not fit the type of its column.
        """
        records = [record for _, _, record in changes]
        return self._batch(
            pa.array([_microseconds(time_s) for time_s, _, _ in changes], self._types[0]),
            pa.array([diff for _, diff, _ in changes], pa.int64()),
            [record.body for record in records] if self._read_bodies is not None else (),
            to_metadata_arrays(records, self._metadata),
        )

    def convert_snapshot(self, chunk: RowChunk, time_s: float) -> pa.RecordBatch:
        """Return rows of records that are present; the chunk has the needed metadata and bodies.

        Raises:
            MisfitError: a value does not fit the type of its column.
        """
        metadata = chunk.metadata
        assert metadata is not None  # noqa: S101 - it was requested
        (bodies,) = [metadata[name] for name in BODY_METADATA & metadata.keys()]
        count = chunk.row_count
        return self._batch(
            pa.array([_microseconds(time_s)] * count, self._types[0]),
            pa.array([1] * count, pa.int64()),
            bodies.to_pylist() if self._read_bodies is not None else (),
            metadata,
        )

    def convert_progress(self, time_s: float) -> pa.RecordBatch:
        """Return the row that tells that all changes before a moment have been sent."""
        values = [_microseconds(time_s), True, *(None for _ in self._names[2:])]
        arrays = [pa.array([value], kind) for value, kind in zip(values, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _batch(
        self,
        times: pa.Array,
        diffs: pa.Array,
        bodies: Sequence[bytes],
        metadata: Mapping[Metadata, pa.Array],
    ) -> pa.RecordBatch:
        count = len(times)
        fields: dict[Path, pa.Array] = {}
        if self._read_bodies is not None:
            values = read_fields(self._read_bodies, self._fields, bodies)
            fields = {field.path: array for field, array in zip(self._fields, values, strict=True)}
        arrays = [times, *([pa.array([False] * count)] if self._has_progress else []), diffs]
        for output in self._outputs:
            if isinstance(output, FieldColumn):
                arrays.append(fields[output.path])
            else:
                array = metadata[output]
                arrays.append(to_text(array) if output is Metadata.BODY else array)
        return pa.RecordBatch.from_arrays(arrays, names=self._names)


class EvaluatedConverter:
    """Converts the changes of one topic, of which a query makes the columns.

    Args:
        source: converts changes to the columns that the query reads; without rows of progress.
        evaluation: evaluates the query.
        cancellation: ends it.
        has_progress: whether there is a column that tells rows of progress.

    Attributes:
        columns: the columns of the rows.
    """

    def __init__(
        self,
        source: ChangeConverter,
        evaluation: LiveEvaluation,
        cancellation: Cancellation,
        *,
        has_progress: bool,
    ) -> None:
        self._source: Final = source
        self._evaluation: Final = evaluation
        self._cancellation: Final = cancellation
        self._has_progress: Final = has_progress
        self._evaluate(source.convert_changes(()))  # to know the columns
        own = [_TIME, *([_PROGRESSED] if has_progress else []), _DIFF]
        self.columns: Final = (
            *(ResultColumn(name, kind.oid) for name, kind in own),
            *(ResultColumn(column.name, column.oid) for column in evaluation.columns),
        )
        self._names: Final = [column.name for column in self.columns]

    def convert_changes(self, changes: Sequence[Change]) -> pa.RecordBatch:
        """See `ChangeConverter.convert_changes`.

        Raises:
            MisfitError: a value does not fit the type of its column.
            SqlError: an expression fails.
        """
        return self._evaluate(self._source.convert_changes(changes))

    def convert_snapshot(self, chunk: RowChunk, time_s: float) -> pa.RecordBatch:
        """See `ChangeConverter.convert_snapshot`.

        Raises:
            MisfitError: a value does not fit the type of its column.
            SqlError: an expression fails.
        """
        return self._evaluate(self._source.convert_snapshot(chunk, time_s))

    def convert_progress(self, time_s: float) -> pa.RecordBatch:
        """See `ChangeConverter.convert_progress`."""
        time = pa.array([_microseconds(time_s)], SqlType.TIMESTAMPTZ.arrow_type)
        arrays = [time, pa.array([True]), *(pa.nulls(1) for _ in self._names[2:])]
        return pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _evaluate(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the query for rows of the topic."""
        times, diffs, *columns = rows.columns
        read = pa.table(columns, names=rows.schema.names[2:])
        if not columns:
            read = pa.table({"": pa.nulls(rows.num_rows)}).select([])
        found, results = self._evaluation.evaluate(read, self._cancellation)
        progress = [pa.array([False] * len(found))] if self._has_progress else []
        arrays = [times.take(found), *progress, diffs.take(found), *results]
        return pa.RecordBatch.from_arrays(
            arrays, names=[str(place) for place in range(len(arrays))]
        )


def _microseconds(time_s: float) -> int:
    return to_nanoseconds(time_s) // NANOSECONDS_IN_MICROSECOND


def _type_of(output: FieldColumn | Metadata) -> SqlType:
    return output.column.type if isinstance(output, FieldColumn) else output.value.type


def message_converter(
    message_type: MessageType, output: Metadata, terms: LiveTerms
) -> ChangeConverter:
    """Return the converter of a topic without records.

    Args:
        message_type: the topic's.
        output: the column of the bodies.
        terms: the terms of the SUBSCRIBE.
    """
    return ChangeConverter(
        message_type, (output,), (output.value.name,), has_progress=terms.has_progress
    )


def make_converter(
    plan: LivePlan, scan_plan: ScanPlan, terms: LiveTerms, cancellation: Cancellation
) -> ChangeConverter | EvaluatedConverter:
    """Return the converter of a topic with records."""
    by_name = dict(zip(plan.request.columns, scan_plan.outputs, strict=True))
    source = ChangeConverter(
        scan_plan.source.table.message_type,
        [by_name[column.source] for column in plan.columns],
        [column.name for column in plan.columns],
        has_progress=terms.has_progress and plan.evaluation is None,
    )
    if plan.evaluation is None:
        return source
    return EvaluatedConverter(
        source, plan.evaluation, cancellation, has_progress=terms.has_progress
    )


def convert_all(
    converter: ChangeConverter | EvaluatedConverter, batches: Iterable[Sequence[Change]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of changes."""
    for changes in batches:
        for start in range(0, len(changes), _BATCH_SIZE):
            yield converter.convert_changes(changes[start : start + _BATCH_SIZE])
