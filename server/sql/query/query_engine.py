"""The query engine: queries are planned in the server, and computed by DuckDB in processes.

A query is planned, and its tables are scanned as of one moment; then a query process gets its text
and these tables, and returns record batches as they are read. DuckDB has no access to files, the
network, extensions and Python's variables, and its configuration is locked.

    plan      `query_plan`: names, entitlement, parameters, pushed-down conditions
    scan      `TableSource`
    compute   `plan_execution`, by `server.sql.query.processes`

A query that its scan answers needs no more than that: see `scan_only_plan`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from server.sql.query.cancellation import Cancellation, time_limit, until_cancelled
from server.sql.query.duckdb_functions import ALLOWED, FUNCTION_NAMES
from server.sql.query.errors import DuckDbError, NotAtOnceError, SqlError
from server.sql.query.explain import TimedScan, explain_lines
from server.sql.query.kept_plans import KeptPlans
from server.sql.query.live_evaluation import LiveEvaluation, NumberedTables, with_row_number
from server.sql.query.live_terms import (
    LivePlan,
    live_scan,
    plan_evaluation,
    plan_query,
    plan_topic,
)
from server.sql.query.lru_cache import LruCache
from server.sql.query.pg_catalog import PgCatalog
from server.sql.query.pg_functions import macros
from server.sql.query.plan_execution import PlanExecution
from server.sql.query.processes.process_pool import ProcessPool, process_limit
from server.sql.query.processes.process_query import QueryText
from server.sql.query.processes.protocol import StartRequest
from server.sql.query.query_plan import QueryPlan
from server.sql.query.results import (
    EXPLAIN_COLUMNS,
    Description,
    QueryColumn,
    QueryResult,
    explained,
    show,
    show_columns,
)
from server.sql.query.rewrite import fold_identifiers
from server.sql.query.scan_only_plan import (
    MAX_RESULT_BYTES,
    ScanOnlyPlan,
    ScanOnlyPlans,
    size_of_texts,
)
from server.sql.query.session import SqlSession
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.statement_parser import parse
from server.sql.query.tables import AsOf, ScanRequest, ScanResult, Table, TableSource
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, OUT_OF_MEMORY
from server.util.memory_limit import available_memory_bytes

if TYPE_CHECKING:
    from server.sql.tables.history_stream import HistoryStream

_MAX_PARSED_TEXTS: Final = 128
_MAX_PARSED_LENGTH: Final = 1_000
"""Characters of a text up to which its statements are kept: trees take 100 times the memory."""

_KEPT_CATALOGUES: Final = 16
"""The number of users' catalogues that are kept, since tools query the catalogue repeatedly."""


class QueryLimits(NamedTuple):
    """Limits of queries.

    Attributes:
        max_memory_bytes: the memory that a query may use.
        max_threads: the number of threads of a query.
        statement_timeout_s: the longest time of a statement; 0 for any.
        batch_rows: the number of rows of a record batch.
    """

    max_memory_bytes: int = 512 * 1024 * 1024
    max_threads: int = 2
    statement_timeout_s: float = 0.0
    batch_rows: int = 2048

    def timeout_s(self, session: SqlSession) -> float:
        """Return the longest time of a statement of a session; 0 for any."""
        times = [
            value for value in (session.statement_timeout_s, self.statement_timeout_s) if value > 0
        ]
        return min(times, default=0.0)


class QueryEngine:
    """Executes queries; methods may be called from several threads."""

    def __init__(self, limits: QueryLimits | None = None) -> None:
        self.limits = limits or QueryLimits()
        self._pool = ProcessPool(_start_request(self.limits), _process_limit(self.limits))
        self._refused_functions: frozenset[str] | None = None
        self._catalogue_lock = threading.Lock()
        self._catalogues: list[PgCatalog] = []
        self._scan_only_plans = ScanOnlyPlans()
        self._kept_plans = KeptPlans()
        self._parsed_texts = LruCache[str, list[Statement]](_MAX_PARSED_TEXTS)

    def parse(self, text: str) -> list[Statement]:
        """Return the statements of a text, see `statement.parse`; queries are kept."""
        statements = self._parsed_texts.get(text)
        if statements is None:
            statements = parse(text)
            is_query = all(one.kind is StatementKind.SELECT for one in statements)
            if is_query and len(text) <= _MAX_PARSED_LENGTH:
                self._parsed_texts.put(text, statements)
        return statements

    def known_statement(self, text: str) -> Statement | None:
        """Return the only statement of a text that has been parsed before; else None."""
        statements = self._parsed_texts.get(text)
        return statements[0] if statements is not None and len(statements) == 1 else None

    def is_point_query(self, statement: Statement, oids: Sequence[int], user: str) -> bool:
        """Return whether a statement is known to read a few records only.

        Args:
            statement: the statement.
            oids: the types of parameters that the client asks for.
            user: the user.
        """
        is_query = statement.kind is StatementKind.SELECT
        return is_query and self._scan_only_plans.is_point_query(statement, oids, user)

    def use_limits(self, limits: QueryLimits) -> None:
        """Replace the limits, for queries that begin from now on."""
        old, self.limits = self.limits, limits
        if limits[:2] != old[:2]:
            self._pool.use_settings(_start_request(limits), _process_limit(limits))

    def close(self) -> None:
        """End all processes; queries in progress fail."""
        self._pool.close()

    def refused_functions(self, user: str, cancellation: Cancellation) -> frozenset[str]:
        """Return the functions of DuckDB that queries may not call, in lower case.

        Args:
            user: the user of the query that calls a function.
            cancellation: the cancellation of that query.

        Raises:
            SqlError: the query is cancelled, or its process ends.
        """
        if self._refused_functions is None:
            text = QueryText(FUNCTION_NAMES, {}, {}, self.limits.batch_rows)
            batches = self._pool.open(text, user, cancellation).batches()
            names = (name for batch in batches for name in batch.column(0).to_pylist())
            self._refused_functions = frozenset(names) - ALLOWED
        return self._refused_functions

    def describe(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameter_oids: Sequence[int] = (),
        cancellation: Cancellation | None = None,
        *,
        at_once: bool = False,
    ) -> Description:
        """Return the types of a statement's parameters and result, without executing it.

        Args:
            statement: the statement.
            source: the tables that the user sees.
            session: the client's session.
            parameter_oids: the types that the client asks for; 0 where it leaves the choice.
            cancellation: cancels the description.
            at_once: whether the description must not wait for a process.

        Raises:
            NotAtOnceError: the description would have to wait.
            SqlError: the statement is wrong.
        """
        if statement.kind is StatementKind.SHOW:
            return Description((), show_columns(statement))
        if statement.tree is None:
            return Description((), None)
        cancellation = cancellation or Cancellation()
        scan_only = self._scan_only_plan(statement, source, session, parameter_oids)
        if statement.kind is StatementKind.SELECT and scan_only is not None:
            description = scan_only.describe()
            if description is not None:
                return description
        if at_once:
            raise NotAtOnceError
        plan = self._plan(statement, source, session, cancellation, parameter_oids)
        if statement.kind is StatementKind.EXPLAIN:
            return Description(plan.parameter_oids, EXPLAIN_COLUMNS, tuple(plan.warnings))
        columns = self._result_columns(plan, session.user, cancellation)
        result = columns if statement.kind is not StatementKind.DECLARE else None
        return Description(plan.parameter_oids, result, tuple(plan.warnings))

    def _result_columns(
        self, plan: QueryPlan, user: str, cancellation: Cancellation
    ) -> tuple[QueryColumn, ...]:
        """Return the columns of a query, before its scans are planned.

        Raises:
            SqlError: a column or a function does not exist, types do not fit, or the description
                is cancelled.
        """
        text = QueryText(plan.sql(as_null=True), {}, plan.empty_tables(), 0)
        try:
            query = self._pool.open(text, user, cancellation)
            list(query.batches())
        except DuckDbError as error:
            cancellation.check()
            return plan.fallback_columns(error)
        except SqlError:
            cancellation.check()
            raise
        return plan.result_columns(query.names, query.types)

    def execute(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameters: Sequence[object] = (),
        *,
        parameter_oids: Sequence[int] = (),
        cancellation: Cancellation | None = None,
        pushdown: bool = True,
        at_once: bool = False,
    ) -> QueryResult:
        """Execute a query: SELECT, EXPLAIN, SHOW, and the queries of COPY and DECLARE.

        Args:
            statement: the statement.
            source: the tables that the user sees.
            session: the client's session.
            parameters: values: None, bool, int, float, Decimal, str, bytes, date, time, datetime,
                timedelta, or a list of these; a text stands for any type.
            parameter_oids: the types that the client asked for.
            cancellation: cancels the query.
            pushdown: False scans whole tables, to compare results in tests.
            at_once: whether the query must not wait for a process.

        Raises:
            NotAtOnceError: the query would have to wait.
            SqlError: the statement is wrong, or fails before its first row.
        """
        cancellation = cancellation or Cancellation()
        cancellation.check()
        if statement.kind is StatementKind.SHOW:
            return show(statement, session)
        started_s = time.monotonic()
        scanned: dict[ScanRequest, ScanResult] = {}
        if pushdown and statement.kind is not StatementKind.EXPLAIN:
            scan_only = self._scan_only_plan(statement, source, session, parameter_oids)
            if scan_only is not None:
                with time_limit(self.limits.timeout_s(session), started_s, cancellation):
                    result = self._scan_only(scan_only, source, parameters, cancellation, scanned)
                if result is not None:
                    return result
        if at_once:
            raise NotAtOnceError
        is_explain = statement.kind is StatementKind.EXPLAIN
        is_executed = not is_explain or "ANALYZE" in statement.options
        may_keep = pushdown and statement.kind is StatementKind.SELECT
        tables = source.tables() if may_keep else ()
        plan = self._kept_plans.find(statement, tables, session.user)
        if plan is None:
            plan = self._plan(statement, source, session, cancellation, parameter_oids, parameters)
            plan.check_parameter_count()
            cancellation.check()
            if not is_executed:  # for the errors that the query would have
                self._result_columns(plan, session.user, cancellation)
            plan.plan_scans(is_enabled=pushdown)
            if may_keep:
                self._kept_plans.keep(statement, session.user, plan)
        cancellation.check()
        if not is_executed:
            lines = explain_lines([TimedScan(scan) for scan in plan.scans], None, None)
            return explained(lines, plan.warnings)
        execution = PlanExecution(plan, cancellation, session, scanned)
        batches = execution.batches(self._pool, source, self.limits, started_s)
        columns = next(batches)
        assert isinstance(columns, tuple)  # noqa: S101 - see `PlanExecution.batches`
        if is_explain:
            rows = sum(batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch))
            elapsed_s = time.monotonic() - started_s
            return explained(explain_lines(execution.scans, rows, elapsed_s), plan.warnings)
        return QueryResult(columns, batches, plan.warnings)

    def _scan_only_plan(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameter_oids: Sequence[int],
    ) -> ScanOnlyPlan | None:
        """Return the plan of a query that a scan answers; None for any other query."""
        return self._scan_only_plans.find(statement, source.tables(), parameter_oids, session.user)

    def _scan_only(
        self,
        plan: ScanOnlyPlan,
        source: TableSource,
        parameters: Sequence[object],
        cancellation: Cancellation,
        scanned: dict[ScanRequest, ScanResult],
    ) -> QueryResult | None:
        """Return the result of a query that a scan answers.

        Returns:
            None if DuckDB has to decide about a condition for these parameters; or if there are
            too many rows to keep, which are in `scanned` then, or have to be scanned again.
        """
        scan = plan.scan(parameters) if len(parameters) >= len(plan.parameter_oids) else None
        if scan is None:
            return None
        data: pa.Table | HistoryStream | None = None
        if plan.has_table:
            request = plan.request(scan)
            try:
                (result,) = source.scan([request])
            except SqlError as error:
                cancellation.check()
                if error.sqlstate == OUT_OF_MEMORY:
                    return None
                raise
            cancellation.check()
            data = result.data
            if not isinstance(data, pa.Table) or size_of_texts(data) > MAX_RESULT_BYTES:
                scanned[request._replace(max_bytes=None)] = result
                return None
            data = plan.select_rows(data, scan)
        batches = plan.batches(data, scan.skipped, self.limits.batch_rows)
        return QueryResult(plan.columns, until_cancelled(batches, cancellation))

    def plan_live(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameters: Sequence[object] = (),
        parameter_oids: Sequence[int] = (),
        cancellation: Cancellation | None = None,
    ) -> tuple[LivePlan | None, AsOf | None]:
        """Return the plan of a SUBSCRIBE, and the moment of the past at which it begins.

        Returns:
            None instead of a plan if its topic is no table, and of a moment if it begins now.

        Raises:
            SqlError: the query cannot be live, or is wrong.
        """
        topic = statement.live.topic if statement.live is not None else None
        cancellation = cancellation or Cancellation()
        if statement.tree is None:
            return None if topic is None else plan_topic(source.tables(), topic), None
        plan = self._plan(statement, source, session, cancellation, parameter_oids, parameters)
        plan.check_parameter_count()
        version = statement.live.version if statement.live is not None else None
        if topic is not None and version is not None:
            return plan_topic(source.tables(), topic), plan.resolve_as_of(version)
        plan.plan_scans(is_enabled=True)
        position = statement.offset + 1
        live_plan = plan_query(statement.tree, plan.tree, plan.scans, position)
        request = live_scan(plan.scans, position).request
        if live_plan is not None:
            return live_plan, request.as_of
        table = request.table
        numbered = NumberedTables(source, table)
        folded = statement.tree.copy()
        fold_identifiers(folded)
        tree = with_row_number(folded, table, numbered.row_column)
        evaluated = replace(statement, tree=tree)
        plan = self._plan(evaluated, numbered, session, cancellation, parameter_oids, parameters)
        plan.plan_scans(is_enabled=True)
        evaluation = LiveEvaluation(plan, self._pool, session.user, numbered.row_column)
        live_plan = plan_evaluation(table, live_scan(plan.scans, position), evaluation)
        return live_plan, request.as_of

    def _plan(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        cancellation: Cancellation,
        parameter_oids: Sequence[int],
        parameters: Sequence[object] | None = None,
    ) -> QueryPlan:
        if statement.tree is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"{statement.tag} has no result")
        tables = source.tables()
        catalogue = partial(self._catalogue, tables, session)
        evaluator = PlanEvaluator(self, self._pool, session.user, cancellation)
        return QueryPlan(
            statement, tables, catalogue, session, evaluator, parameter_oids, parameters
        )

    def _catalogue(self, tables: Sequence[Table], session: SqlSession) -> PgCatalog:
        """Return the catalogue of the tables; the last ones are kept."""
        wanted = tuple(tables)
        with self._catalogue_lock:
            for catalogue in self._catalogues:
                if catalogue.is_of(wanted, session):
                    return catalogue
        catalogue = PgCatalog(wanted, session)
        with self._catalogue_lock:
            self._catalogues = [catalogue, *self._catalogues[: _KEPT_CATALOGUES - 1]]
        return catalogue


class PlanEvaluator:
    """Evaluates constant expressions of a plan by DuckDB, and lists its refused functions."""

    def __init__(
        self, engine: QueryEngine, pool: ProcessPool, user: str, cancellation: Cancellation
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._user = user
        self._cancellation = cancellation

    def evaluate(self, sql: str, values: Mapping[str, object]) -> object:
        """Return the value of a query of one row and one column.

        Raises:
            DuckDbError: the query fails.
        """
        query = self._pool.open(QueryText(sql, values, {}, 1), self._user, self._cancellation)
        ((value,),) = (batch.column(0).to_pylist() for batch in query.batches())
        return value

    def refused_functions(self) -> frozenset[str]:
        """Return the names of DuckDB's functions that queries may not call, in lower case."""
        return self._engine.refused_functions(self._user, self._cancellation)


def _process_limit(limits: QueryLimits) -> int:
    return process_limit(limits.max_memory_bytes, available_memory_bytes() // 2)


def _start_request(limits: QueryLimits) -> StartRequest:
    """Return the settings of query processes."""
    settings = {
        "memory_limit": f"'{limits.max_memory_bytes}B'",
        "threads": str(limits.max_threads),
        "temp_directory": "''",  # nothing is spilled to disk
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "integer_division": "true",
        "default_null_order": "'nulls_last_on_asc_first_on_desc'",
        "TimeZone": "'UTC'",
        "enable_external_access": "false",
    }
    return StartRequest(settings, tuple(macros()), limits.max_memory_bytes)
