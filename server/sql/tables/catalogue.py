"""The tables that a session's user may see, and scans of them.

Every topic with records is a table: SOW topics, views and conflated topics of all message types, or
of the transport's one; and so is every queue. A topic with a Pattern is one table, with the logical
topic in `_topic`. The schema is `amps` for names that are unique among the tables that the user
sees, else the message type's name.

A topic that the user may not read is no table. The columns of a table are learned from the records
that the user may see, so hidden records show in nothing: users with different permitted filters
have columns of their own (`InstanceTables`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from config_schema.table_names import table_names
from server.expressions import ExpressionError
from server.expressions.tree import paths
from server.security.bound_identity import PermitBinder
from server.security.permissions import Permission
from server.sql.engine_thread import post_call, submit_to_engine, wait_for_engine
from server.sql.query.errors import NotAtOnceError
from server.sql.query.tables import AMPS_SCHEMA, ScanResult, Table, TableKind
from server.sql.statement_threads import blocking_wait
from server.sql.tables.columns import FieldColumn, LearnedColumns, Metadata, body_column
from server.sql.tables.errors import (
    ColumnsWidenedError,
    InvalidFilterError,
    MisfitError,
    TableGoneError,
)
from server.sql.tables.history_table import (
    SessionHistory,
    VisibleTopic,
)
from server.sql.tables.instance_tables import InstanceTables, SessionTopic, SourceColumns
from server.sql.tables.key_filter import with_key_texts
from server.sql.tables.past_states import check_history, find_point
from server.sql.tables.queue_table import QueueSource
from server.sql.tables.row_conversion import to_arrow_table
from server.sql.tables.scan import ScanPlan, TopicMisfitError, TopicScan
from server.sql.tables.statistics_table import (
    NO_STATISTICS,
    SessionStatistics,
    StatisticsAccess,
)
from server.storage.journal import JournalTopic
from server.storage.sow.records import to_nanoseconds
from server.topics.subscriptions.delivery.presentation import SelectList
from server.topics.subscriptions.entitlement_limits import permitted_filter

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sql.query.tables import AsOf, Column, ScanRequest
    from server.sql.tables.history_stream import HistoryStream
    from server.sql.tables.row_chunk import RowChunk
    from server.sql.tables.segment_cache import TopicSegments
    from server.storage.sow.history import HistoryPoint
    from server.topics.record_source import RecordSource

_ResultT = TypeVar("_ResultT")


_MAX_LEARNED_AGAIN: Final = 32
"""Topics of which changed records are sampled again when tables are listed."""

_LIST_LIFETIME_S: Final = 0.25
"""Seconds for which a session uses the same list of tables: clients send queries in a row."""

_NO_RECORDS: Final = (TableKind.HISTORY, TableKind.STATISTICS)
"""Tables that are not read by a `TopicScan`."""

_SLICE_SECONDS: Final = 0.000_2
_PERMIT_BATCH_SIZE: Final = 20


class _ListedTables(NamedTuple):
    """The tables of a user, and when they were listed: by `Scheduler.elapsed`, and `version`."""

    tables: Sequence[Table]
    at_s: float
    version: int


class SessionTables:
    """The tables of one session's user: see `TableSource`.

    Args:
        instance_tables: the topics of the instance.
        session: the session, which has logged on.
        post: schedules a call on the engine's thread.
        max_bytes: the maximum memory of the rows of a scan.
        statistics: decides who may see statistics.

    Attributes:
        at_once: whether the engine's thread itself asks, so that nothing may wait.
    """

    def __init__(
        self,
        instance_tables: InstanceTables,
        session: Session,
        post: Callable[[Callable[[], None]], None],
        max_bytes: int,
        statistics: StatisticsAccess = NO_STATISTICS,
    ) -> None:
        self._instance_tables: Final = instance_tables
        self._session: Final = session
        self._post: Final = post
        self._max_bytes: Final = max_bytes
        self._permit_binder: Final = PermitBinder(session)
        self._history: Final = SessionHistory(
            instance_tables.history,
            lambda: session.client_name,
            self._find_read_permit,
            lambda: self._is_cancelled,
            self.refresh,
            post,
        )
        self._statistics: Final = SessionStatistics(
            statistics, lambda: session.permissions, max_bytes, lambda: self._is_cancelled
        )
        self._topics: Mapping[tuple[str, str], SessionTopic] = {}
        self._listed: _ListedTables | None = None
        self._running: TopicScan | None = None
        self._is_cancelled = False
        self.at_once = False

    def tables(self) -> Sequence[Table]:
        """See `TableSource.tables`. Called on a worker thread, unless it is to be `at_once`.

        Raises:
            NotAtOnceError: the tables have to be listed.
            ScanError: the instance is stopping, or is too busy.
        """
        engine = self._instance_tables.engine
        now, version, listed = engine.scheduler.elapsed(), engine.sow_registry.version, self._listed
        if listed and listed.version == version and now - listed.at_s < _LIST_LIFETIME_S:
            return listed.tables
        if self.at_once:
            raise NotAtOnceError
        self._history.discover()
        listed_topics = self._wait(self._list_topics)
        visible = [one for one in listed_topics if isinstance(one, VisibleTopic)]
        tables = (
            *(one.table for one in listed_topics if isinstance(one, SessionTopic)),
            *self._history.make_tables(visible),
            *(one for one in listed_topics if isinstance(one, Table)),
        )
        self._listed = _ListedTables(tables, now, version)
        return tables

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """See `TableSource.scan`. Called on a worker thread, unless it is to be `at_once`.

        Raises:
            ColumnsWidenedError: a column has values of another type than its table says.
            NotAtOnceError: there is too much to read.
            ScanError: the scan has failed, or was cancelled.
        """
        if self.at_once:
            return self._scan_at_once(requests)
        engine = self._instance_tables.engine
        streams: dict[ScanRequest, HistoryStream] = {}
        limits = [request.max_bytes or self._max_bytes for request in requests]
        max_bytes = min(limits, default=self._max_bytes)
        points = {
            as_of: find_point(engine, self._session.number, as_of, partial(post_call, self._post))
            for as_of in {request.as_of for request in requests}
            if as_of is not None
        }

        def begin() -> tuple[TopicScan, Sequence[ScanPlan]]:
            for request in requests:
                if request.table.kind is TableKind.HISTORY:
                    streams[request] = self._history.open(request)
                elif request.table.kind is TableKind.STATISTICS:
                    self._statistics.check(request)
            plans = [
                self._make_plan(request, points)
                for request in requests
                if request.table.kind not in _NO_RECORDS
            ]
            return self._start_scan(plans, max_bytes), plans

        begun = submit_to_engine(self._post, begin)
        try:
            with blocking_wait():
                scan, plans = begun.result()
            results = dict(
                zip(
                    (one for one in requests if one.table.kind not in _NO_RECORDS),
                    self._finish_scan(scan, plans, max_bytes),
                    strict=True,
                )
            )
            for request in requests:
                if request.table.kind is TableKind.HISTORY:
                    streams[request].prepare()
                    results[request] = ScanResult(streams[request])
                elif request.table.kind is TableKind.STATISTICS:
                    results[request] = self._statistics.scan(request)
        except BaseException:
            for stream in streams.values():
                stream.close()
            raise
        return [results[request] for request in requests]

    def _start_scan(self, plans: Sequence[ScanPlan], max_bytes: int) -> TopicScan:
        """Begin to read tables; on the engine's thread."""
        engine = self._instance_tables.engine
        scan = TopicScan(plans, self._session.client_name, max_bytes, engine.scheduler.elapsed)
        self._running = scan
        scan.start(engine.scheduler.start_task, to_nanoseconds(engine.clock.now()))
        return scan

    def _scan_at_once(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """Return the few records of one request."""
        (request,) = requests
        engine = self._instance_tables.engine
        plans = [self._make_plan(request, {})]
        max_bytes = request.max_bytes or self._max_bytes
        scan = TopicScan(plans, self._session.client_name, max_bytes, engine.scheduler.elapsed)
        if not scan.run_at_once(to_nanoseconds(engine.clock.now())):
            raise NotAtOnceError
        return self._finish_scan(scan, plans, max_bytes)

    def _finish_scan(
        self, scan: TopicScan, plans: Sequence[ScanPlan], max_bytes: int
    ) -> Sequence[ScanResult]:
        """Wait for a scan, and convert its rows."""
        if self._is_cancelled:
            scan.cancel()
        try:
            with blocking_wait():
                rows = scan.rows.result()
        except TopicMisfitError as error:
            raise self._widened(error.plan, error.misfit) from None
        finally:
            self._running = None
        results: list[ScanResult] = []
        for plan, table_rows in zip(plans, rows, strict=True):
            try:
                data = to_arrow_table(plan, table_rows.chunks, max_bytes)
            except MisfitError as misfit:
                raise self._widened(plan, misfit) from None
            results.append(ScanResult(data, table_rows.records_scanned))
        return results

    def _widened(self, plan: ScanPlan, misfit: MisfitError) -> ColumnsWidenedError:
        """Widen the columns of a topic; return the error of the scan."""
        self.widen(plan.topic_columns, misfit)
        return ColumnsWidenedError(
            f"columns of {plan.source.name} have got values of another type meanwhile"
        )

    def scan_live(
        self,
        request: ScanRequest,
        on_begin: Callable[[ScanPlan, Expr | None], None],
        *,
        has_snapshot: bool,
        metadata: Sequence[Metadata] = (),
        point: HistoryPoint | None = None,
    ) -> tuple[ScanPlan, Sequence[RowChunk]]:
        """Begin to follow a topic, and scan it, as of the same moment. Called on a worker thread.

        Args:
            request: the columns to follow, and the filter.
            on_begin: places the subscription, given the plan and the filter without the permitted
                one; called on the engine's thread.
            has_snapshot: whether to scan.
            metadata: metadata to read, apart from that of the request.
            point: the point in the past that the request's `as_of` stands for.

        Returns:
            The plan, and the rows: their bodies, without fields that the user may not see if the
            request has bodies, and the metadata that it has.

        Raises:
            ScanError: the scan has failed, or was cancelled.
        """
        engine = self._instance_tables.engine

        def begin() -> tuple[ScanPlan, TopicScan | None]:
            points = {} if request.as_of is None or point is None else {request.as_of: point}
            plan = self._make_plan(request, points)
            requested = (
                None if request.filter is None else engine.filter_parser.parse(request.filter)
            )
            on_begin(plan, requested)
            if not has_snapshot:
                return plan, None
            shown = [output for output in plan.outputs if isinstance(output, Metadata)]
            body = body_column(plan.source.table.message_type)
            outputs = tuple(dict.fromkeys((*shown, *metadata, body)))
            scanned = plan._replace(outputs=outputs, tested=(), segments=None)
            return plan, self._start_scan([scanned], self._max_bytes)

        begun = submit_to_engine(self._post, begin)
        with blocking_wait():
            plan, scan = begun.result()
        if scan is None:
            return plan, ()
        if self._is_cancelled:
            scan.cancel()
        try:
            with blocking_wait():
                (rows,) = scan.rows.result()
        finally:
            self._running = None
        return plan, rows.chunks

    def widen(self, columns: LearnedColumns, misfit: MisfitError) -> None:
        """Widen the columns of a topic, for values of other types; on a worker thread."""
        self.refresh()
        post_call(self._post, partial(_widen, columns, misfit))

    @property
    def max_bytes(self) -> int:
        """The maximum memory of the rows of a scan."""
        return self._max_bytes

    def refresh(self) -> None:
        """List the tables anew when they are asked for next, as columns have changed."""
        self._listed = None

    def find_topic(self, table: Table) -> SessionTopic | None:
        """Return the topic of a table that was listed; called on the engine's thread."""
        return self._topics.get((table.schema, table.name))

    def find_source(self, source: RecordSource) -> SessionTopic | None:
        """Return the topic that was listed for some records; called on the engine's thread."""
        return next((topic for topic in self._topics.values() if topic.source is source), None)

    def cancel(self) -> None:
        """End the scan in progress, and all later ones; from any thread."""
        self._is_cancelled = True
        scan = self._running
        if scan is not None:
            scan.cancel()

    def allow(self) -> None:
        """Allow scans again after `cancel`: the next query begins."""
        self._is_cancelled = False

    def _wait(self, steps: Callable[[], Iterator[_ResultT | None]]) -> Sequence[_ResultT]:
        """Run steps in slices on the engine's thread; return their results that are not None."""
        task = _CollectTask(self._session.client_name, steps, self._instance_tables.engine)
        post_call(self._post, task.start)
        try:
            return wait_for_engine(task.results)
        finally:
            task.results.cancel()  # if it has not ended in time

    # ---- on the engine's thread

    def _list_topics(self) -> Iterator[SessionTopic | VisibleTopic | Table | None]:
        """List the user's topics, topics of the log, and tables of statistics.

        Columns of topics are learned where necessary.
        """
        instance_tables, only_type = (
            self._instance_tables,
            self._session.connection_context.message_type,
        )
        visible: list[tuple[RecordSource, TableKind, Permit]] = []
        for number, (source, kind) in enumerate(instance_tables.sources, 1):
            if only_type not in (None, source.type_name):
                continue
            permit = self._read_permit(source)
            if permit is not None:
                visible.append((source, kind, permit))
            if number % _PERMIT_BATCH_SIZE == 0:
                yield None
        names = table_names((source.name, source.type_name) for source, _, _ in visible)
        learned = 0 if instance_tables.may_learn_again() else _MAX_LEARNED_AGAIN
        topics: dict[tuple[str, str], SessionTopic] = {}
        for (source, kind, permit), name in zip(visible, names, strict=True):
            columns = instance_tables.columns_of(source, permit)
            if columns.is_outdated and (not columns.has_sample or learned < _MAX_LEARNED_AGAIN):
                learned += columns.has_sample
                for _ in columns.learn():
                    yield None
            schema = name.qualifier or AMPS_SCHEMA
            topics[schema, source.name] = self._make_topic(schema, source, kind, permit, columns)
            yield None
        self._topics = topics
        yield from topics.values()
        record_fields = {
            JournalTopic(topic.source.type_name, topic.source.name): topic.columns.fields
            for topic in topics.values()
            if topic.table.kind is TableKind.TOPIC
        }
        yield from self._history.list_visible(only_type, record_fields)
        yield from self._statistics.list_tables()

    def _read_permit(self, source: RecordSource) -> Permit | None:
        """Return the user's permit to read a topic; None if there is none."""
        return self._find_read_permit(source.name, source.table.message_type)

    def _find_read_permit(self, name: str, message_type: MessageType) -> Permit | None:
        """Return the user's permit to read a topic; None if there is none.

        A permit for certain fields allows nothing if the message type has no select lists, as for
        other commands (`Session.get_permit`).
        """
        permit = self._permit_binder.bind(
            self._session.permissions.get_permit(Permission.READ_TOPIC, name)
        )
        if not permit.is_allowed:
            return None
        if permit.select is not None and not message_type.capabilities.select:
            return None
        return permit

    def _make_topic(
        self,
        schema: str,
        source: RecordSource,
        kind: TableKind,
        permit: Permit,
        columns: SourceColumns,
    ) -> SessionTopic:
        select = permit.select
        fields = [
            field for field in columns.fields if select is None or select.includes_whole(field.path)
        ]
        outputs: dict[str, FieldColumn | Metadata] = {
            field.column.name: field for field in fields
        } | {metadata.value.name: metadata for metadata in (*columns.metadata, Metadata.SEQUENCE)}
        names = {field.path: field.column.name for field in fields}
        key = tuple(names[path] for path in source.key_fields if path in names)
        if not key or len(key) < len(source.key_fields):
            has_key = Metadata.KEY in columns.metadata
            key = ((Metadata.KEY if has_key else Metadata.BOOKMARK).value.name,)
        if source.is_container:
            key = (Metadata.TOPIC.value.name, *key)
        shown: tuple[Column, ...] = (
            *(field.column for field in fields),
            *(metadata.value for metadata in columns.metadata),
        )
        table = Table(schema, source.name, kind, shown, key, self._may_publish(source.name, kind))
        return SessionTopic(source, permit, columns, table, outputs)

    def _may_publish(self, name: str, kind: TableKind) -> bool:
        if kind not in (TableKind.TOPIC, TableKind.QUEUE):
            return False
        return self._session.permissions.get_permit(Permission.WRITE_TOPIC, name).is_allowed

    def _make_plan(self, request: ScanRequest, points: Mapping[AsOf, HistoryPoint]) -> ScanPlan:
        """Return the plan of a request.

        Raises:
            ScanError: the table or a column does not exist for the user, or the filter is invalid.
            SqlError: the topic has no states as of the requested moment.
        """
        table = request.table
        topic = self._topics.get((table.schema, table.name))
        permit = None if topic is None else self._read_permit(topic.source)
        if topic is None or permit is None or permit.filter_text != topic.permit.filter_text:
            raise TableGoneError(f'relation "{table.schema}.{table.name}" does not exist')
        types = {column.name: column for column in table.columns}
        fields = {
            output.path: FieldColumn(types[name], output.path)
            for name, output in topic.outputs.items()
            if isinstance(output, FieldColumn) and name in types
        }
        outputs: list[FieldColumn | Metadata] = []
        for name in request.columns:
            output = topic.outputs.get(name)
            if output is None or name not in types:
                raise TableGoneError(f'column "{name}" of "{table.name}" does not exist')
            if isinstance(output, FieldColumn):
                if permit.select is not None and not permit.select.includes_whole(output.path):
                    raise TableGoneError(f'column "{name}" of "{table.name}" does not exist')
                output = FieldColumn(types[name], output.path)
            outputs.append(output)
        engine = self._instance_tables.engine
        point = None
        if request.as_of is not None:
            point = points[request.as_of]
            check_history(engine, topic.source, request.as_of, point)
        requested = None
        if request.filter is not None:
            try:
                requested = with_key_texts(
                    engine.filter_parser.parse(request.filter),
                    topic.source.table,
                    {path: field.column.type for path, field in fields.items()},
                )
            except ExpressionError as error:
                raise InvalidFilterError(str(error)) from None
        tested_paths = () if requested is None else paths(requested)
        tested = [fields[path] for path in tested_paths if path in fields]
        permitted = None
        if permit.select is not None and {Metadata.BODY, Metadata.BINARY_BODY} & {
            output for output in outputs if isinstance(output, Metadata)
        }:
            permitted = SelectList(
                permit.select_text,
                permit.select,
                topic.source.table.message_type,
                is_entitlement=True,
            )
        return ScanPlan(
            topic.source,
            topic.columns,
            outputs,
            permitted_filter(permit, requested),
            request.limit,
            permitted,
            permit.filter is not None,
            point,
            tested,
            self._segments(topic.source, permit),
        )

    def _segments(self, source: RecordSource, permit: Permit) -> TopicSegments | None:
        """Return the segments of a topic for a user.

        Returns:
            None if the user may not see all records: their values would be found in the columns.
        """
        if permit.filter is not None or isinstance(source, QueueSource):
            return None
        return self._instance_tables.segments.topic(source.table)


class _CollectTask(Generic[_ResultT]):
    """Work in slices on the engine's thread, with results for another thread: an `EngineTask`."""

    def __init__(
        self, client_name: str, steps: Callable[[], Iterator[_ResultT | None]], engine: Engine
    ) -> None:
        self.results: Final[Future[list[_ResultT]]] = Future()
        self._client_name: Final = client_name
        self._make_steps: Final = steps
        self._engine: Final = engine
        self._found: list[_ResultT] = []
        self._steps: Iterator[_ResultT | None] = iter(())

    def start(self) -> None:
        self._steps = self._make_steps()
        self._engine.scheduler.start_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._client_name, "sql tables"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        elapsed = self._engine.scheduler.elapsed
        end = elapsed() + _SLICE_SECONDS
        try:
            while not self.results.done():
                found = next(self._steps)
                if found is not None:
                    self._found.append(found)
                elif elapsed() >= end:
                    return True
        except StopIteration:
            with suppress(InvalidStateError):
                self.results.set_result(self._found)
        except Exception as error:  # any error: the worker thread must not wait without end
            with suppress(InvalidStateError):
                self.results.set_exception(error)
        return False


def _widen(columns: LearnedColumns, misfit: MisfitError) -> None:
    for path, sql_type in misfit.types.items():
        columns.widen(path, sql_type)


def is_configured(engine: Engine, message_type: str, name: str) -> bool:
    """Return whether the configuration has a topic: with records, recorded, or a queue."""
    log, queues = engine.transaction_log, engine.topics.queues
    return (
        engine.sow_registry.find(message_type, name) is not None
        or (queues is not None and queues.find(message_type, name) is not None)
        or (log is not None and log.is_recorded(message_type, name))
    )
