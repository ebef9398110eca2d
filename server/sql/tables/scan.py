"""Scans: read columns of several topics, as of one moment, while records change.

A scan is requested on a query's worker thread, which waits for it. On the engine's thread, its
snapshots are opened in one step, and the records are read in time slices. A `ColumnQuery` finds the
rows. It collects only references to columns, or bodies where there are no columns; the worker
thread parses and converts them.

A user's limits are those of `sow`: the permitted filter is a part of the scan's filter, the columns
of hidden fields do not exist, and a body has the permitted fields only. The number of records
scanned counts those that the user may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from server.expressions.regex.budget import TooCostlyError
from server.expressions.tree import paths
from server.sql.tables.column_query import ColumnQuery
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.errors import (
    InvalidFilterError,
    MisfitError,
    ScanCancelledError,
    ScanError,
    records_too_large,
)
from server.sql.tables.metadata_arrays import BODY_METADATA
from server.sql.tables.queue_table import QueueScan, QueueSource
from server.sql.tables.row_chunk import RowChunk
from server.sql.tables.segment_rows import VALUE_BYTES
from server.storage.sow.store import RecordStoreError

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.message_types.paths import Path
    from server.sql.tables.columns import LearnedColumns
    from server.sql.tables.segment_cache import TopicSegments
    from server.storage.sow.history import HistoryPoint
    from server.topics.record_source import RecordSource
    from server.topics.subscriptions.delivery.presentation import SelectList
    from server.util.task import EngineTask

_REDACTION_BATCH_SIZE: Final = 100
"""Bodies of which hidden fields are removed in a time slice."""

_MAX_POINT_RECORDS: Final = 4
"""Records that are tested without a task."""

_SLICE_SECONDS: Final = 0.000_2
"""Time after which a step does not begin with another block."""


class ScanPlan(NamedTuple):
    """One table of a scan.

    Attributes:
        source: the topic.
        topic_columns: its columns, which the scan may widen.
        outputs: the columns to return, in order.
        filter: the filter of the records, with the permitted one; None for all.
        limit: the maximum number of records; None for all.
        permitted: the fields that bodies may have; None for all.
        hides_count: whether the user must not know how many records were tested.
        as_of: the point in the past that is read; None for now.
        tested: the columns that the requested filter tests; their values have to fit their types,
            too.
        segments: the segments of the topic; None if they are not used.
    """

    source: RecordSource
    topic_columns: LearnedColumns
    outputs: Sequence[FieldColumn | Metadata]
    filter: Expr | None
    limit: int | None
    permitted: SelectList | None
    hides_count: bool
    as_of: HistoryPoint | None = None
    tested: Sequence[FieldColumn] = ()
    segments: TopicSegments | None = None

    @property
    def read_fields(self) -> tuple[Path, ...]:
        """The fields with values that have to fit the types of their columns."""
        outputs = (output for output in self.outputs if isinstance(output, FieldColumn))
        return tuple(dict.fromkeys(field.path for field in (*outputs, *self.tested)))

    @property
    def fields(self) -> tuple[Path, ...]:
        """The fields of the columns, and those that the filter tests."""
        tested = () if self.filter is None else paths(self.filter)
        return tuple(dict.fromkeys((*self.read_fields, *tested)))


class TopicMisfitError(Exception):
    """A value of a topic does not fit the type of its column.

    Attributes:
        plan: the table.
        misfit: the columns.
    """

    def __init__(self, plan: ScanPlan, misfit: MisfitError) -> None:
        super().__init__(str(misfit))
        self.plan = plan
        self.misfit = misfit


class TableRows(NamedTuple):
    """The rows of one table.

    Attributes:
        chunks: the rows.
        records_scanned: the number of records tested; of matches if the user must not know it.
    """

    chunks: Sequence[RowChunk]
    records_scanned: int


class TopicScan:
    """A scan of tables: an `EngineTask`, and its result for another thread.

    Args:
        plans: the tables.
        client_name: the client that it is for.
        max_bytes: the maximum memory of the rows.
        elapsed: returns seconds, monotonic.

    Attributes:
        rows: the rows of each table.
    """

    def __init__(
        self,
        plans: Sequence[ScanPlan],
        client_name: str,
        max_bytes: int,
        elapsed: Callable[[], float],
    ) -> None:
        self.rows: Final[Future[Sequence[TableRows]]] = Future()
        self._plans: Final = plans
        self._client_name: Final = client_name
        self._max_bytes: Final = max_bytes
        self._elapsed: Final = elapsed
        self._bytes = 0
        self._queries: list[ColumnQuery | QueueScan] = []
        self._steps: Iterator[None] = iter(())

    def start(self, start_task: Callable[[EngineTask], None], now: int) -> None:
        """Open the snapshots of all tables, and begin to read.

        Args:
            start_task: starts work in time slices.
            now: the time, in nanoseconds since 1970.
        """
        try:
            self._queries = [_open_query(plan, now) for plan in self._plans]
        except Exception as error:
            self._fail(error)
            return
        self._steps = self._run()
        if self.step():
            start_task(self)

    def run_at_once(self, now: int) -> bool:
        """Read the table of the scan, if keys leave a few of its records.

        Args:
            now: the time, in nanoseconds since 1970.

        Returns:
            Whether it has been read; if not, nothing has been done.
        """
        (plan,) = self._plans
        try:
            query = _open_query(plan, now)
        except Exception as error:
            self._fail(error)
            return True
        self._queries = [query]
        if isinstance(query, QueueScan) or query.candidate_count > _MAX_POINT_RECORDS:
            self._close()
            return False
        self._steps = self._run()
        while self.step():
            pass
        return True

    def cancel(self, error: ScanError | None = None) -> None:
        """End the scan; from any thread, and harmless if it has ended."""
        with suppress(InvalidStateError):
            self.rows.set_exception(error or ScanCancelledError("the query was cancelled"))

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._client_name, "sql scan"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        if self.rows.done():
            self._close()
            return False
        end = self._elapsed() + _SLICE_SECONDS
        try:
            while True:
                next(self._steps)
                if self._elapsed() >= end:
                    return True
        except StopIteration:
            return False
        except Exception as error:  # any error: the worker thread must not wait without end
            self._fail(error)
            return False

    def _run(self) -> Iterator[None]:
        tables: list[TableRows] = []
        for plan, query in zip(self._plans, self._queries, strict=True):
            chunks: list[RowChunk] = []
            field_count = sum(isinstance(output, FieldColumn) for output in plan.outputs)
            for found in _chunks(plan, query):
                for chunk in found:
                    if chunk.segment is None or plan.filter is None:
                        self._charge(chunk, field_count)
                    chunks.append(chunk)
                yield
            if plan.permitted is not None:
                for number, chunk in enumerate(chunks):
                    for redacted in _redact(chunk, plan.permitted):
                        chunks[number] = redacted or chunk
                        yield
            scanned = query.matches if plan.hides_count else query.topic_matches
            tables.append(TableRows(chunks, scanned))
        with suppress(InvalidStateError):
            self.rows.set_result(tables)

    def _charge(self, chunk: RowChunk, field_count: int) -> None:
        """Add the memory of a chunk.

        Raises:
            ScanTooLargeError: it is too much.
        """
        if chunk.bodies is not None:
            self._bytes += sum(map(len, chunk.bodies))
        if chunk.metadata is not None:
            self._bytes += sum(array.nbytes for array in chunk.metadata.values())
        self._bytes += VALUE_BYTES * field_count * chunk.row_count
        if self._bytes > self._max_bytes:
            raise records_too_large(self._max_bytes)

    def _fail(self, error: Exception) -> None:
        self._close()
        match error:
            case ScanError():
                self.cancel(error)
            case TooCostlyError():
                self.cancel(InvalidFilterError(str(error)))
            case RecordStoreError():
                self.cancel(ScanError(str(error)))
            case _:
                with suppress(InvalidStateError):
                    self.rows.set_exception(error)

    def _close(self) -> None:
        for query in self._queries:
            query.close()
        self._queries.clear()
        self._steps = iter(())


def _open_query(plan: ScanPlan, now: int) -> ColumnQuery | QueueScan:
    table = plan.source.table
    table.queries += 1
    metadata = [output for output in plan.outputs if isinstance(output, Metadata)]
    if isinstance(plan.source, QueueSource):
        return QueueScan(plan.source, plan.filter, metadata, plan.limit)
    return ColumnQuery(plan, metadata, now)


def _chunks(plan: ScanPlan, query: ColumnQuery | QueueScan) -> Iterator[Sequence[RowChunk]]:
    """Yield the rows of a table; a value that does not fit raises a TopicMisfitError."""
    try:
        yield from query.chunks()
    except MisfitError as misfit:
        raise TopicMisfitError(plan, misfit) from None


def _redact(chunk: RowChunk, permitted: SelectList) -> Iterator[RowChunk | None]:
    """Remove hidden fields from the bodies of a chunk, in steps; yield it in the last one."""
    assert chunk.metadata is not None  # noqa: S101 - bodies are metadata
    metadata = dict(chunk.metadata)
    for name in BODY_METADATA & metadata.keys():
        bodies = metadata[name]
        redacted: list[bytes] = []
        for start in range(0, len(bodies), _REDACTION_BATCH_SIZE):
            batch = bodies.slice(start, _REDACTION_BATCH_SIZE).to_pylist()
            redacted += map(permitted.apply, batch)
            yield None
        metadata[name] = pa.array(redacted, pa.binary())
    yield chunk._replace(metadata=metadata)
