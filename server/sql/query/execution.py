"""Execution of queries by DuckDB: in memory, within limits, as a stream of record batches.

One instance of DuckDB serves all queries, so that its limits of memory and threads hold for all of
them together; each query has a connection of its own, in which its tables are registered. Clients
never send statements to DuckDB: it gets SELECTs that are written here, with names of registered
tables (`names`) and functions that are allowed (`rewrite`). In addition, the instance has no access
to files, the network, extensions and Python's variables, and its configuration is locked.

DuckDB's limit of memory holds for tables, hash tables and sorts, not for the text or the list that
one call of a function makes; `rewrite` bounds the functions that make large ones of small ones.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from server.sql.query import duckdb_errors, pg_types
from server.sql.query.as_of import take_versions
from server.sql.query.cancellation import BY_TIMEOUT, Cancellation
from server.sql.query.column_names import alias_inner_columns, output_names
from server.sql.query.dialect import to_duckdb
from server.sql.query.errors import (
    FEATURE_NOT_SUPPORTED,
    PROTOCOL_VIOLATION,
    QUERY_CANCELED,
    SYNTAX_ERROR,
    UNDEFINED_TABLE,
    SqlError,
)
from server.sql.query.explain import TimedScan, explain_lines
from server.sql.query.live_terms import LivePlan, plan_query, plan_topic
from server.sql.query.names import (
    CommonTables,
    NameResolver,
    Relation,
    TableReference,
    is_table_function,
    unused_prefix,
)
from server.sql.query.notifiers import Notifiers
from server.sql.query.parameters import infer_parameters, type_parameters
from server.sql.query.pg_catalog import PgCatalog
from server.sql.query.pg_functions import macros
from server.sql.query.pushdown import PlannedScan, plan_scans
from server.sql.query.rewrite import ExpressionRewriter, fold_identifiers
from server.sql.query.session import SqlSession
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.tables import RowStream, ScanRequest, ScanResult, Table, TableSource

MAX_COLUMNS: Final = 1600
"""The number of columns of a result: that of PostgreSQL."""

_INTERRUPT_INTERVAL_S: Final = 0.05
"""The interval at which a cancelled query is interrupted until it ends."""

_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
_KEPT_CATALOGUES: Final = 16
"""The number of users' catalogues that are kept, since tools ask many questions in a row."""


class QueryLimits(NamedTuple):
    """Limits of queries.

    Attributes:
        max_memory_bytes: the memory that all queries may use together.
        max_threads: the number of threads of DuckDB.
        statement_timeout_s: the longest time of a statement; 0 for any.
        batch_rows: the number of rows of a record batch.
    """

    max_memory_bytes: int = 512 * 1024 * 1024
    max_threads: int = 2
    statement_timeout_s: float = 0.0
    batch_rows: int = 2048


class QueryColumn(NamedTuple):
    """A column of a result, as a client is told it.

    Attributes:
        name: the name; several may have the same.
        oid: the OID of the type.
    """

    name: str
    oid: int


class Description(NamedTuple):
    """A statement's parameters and result, without executing it.

    Attributes:
        parameter_oids: the types of `$1`, `$2`, ...
        columns: the columns of the result; None if there is no result.
        warnings: unknown parts of the catalogue, for the log.
    """

    parameter_oids: tuple[int, ...]
    columns: tuple[QueryColumn, ...] | None
    warnings: tuple[str, ...] = ()


class QueryResult:
    """The result of a query: its columns, and its rows as they are computed.

    It has to be read to its end, or closed.

    Attributes:
        columns: the columns.
        warnings: unknown parts of the catalogue, for the log.
        scans: what was scanned.
    """

    def __init__(
        self,
        columns: Sequence[QueryColumn],
        batches: Iterator[pa.RecordBatch],
        warnings: Sequence[str] = (),
        scans: Sequence[TimedScan] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.warnings = tuple(warnings)
        self.scans = tuple(scans)
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the columns are those of `columns`, in their order.

        Raises:
            SqlError: the query fails or is cancelled.
        """
        return self._batches

    def close(self) -> None:
        """End the query."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


class QueryEngine:
    """Executes queries; methods may be called from several threads.

    Args:
        limits: the limits of queries.

    Attributes:
        limits: see above.
        notifiers: what `pg_notify` calls in the sessions that may publish.
    """

    def __init__(self, limits: QueryLimits | None = None) -> None:
        self.limits = limits or QueryLimits()
        self._database = duckdb.connect(":memory:")
        settings = {
            "memory_limit": f"'{self.limits.max_memory_bytes}B'",
            "threads": self.limits.max_threads,
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
        for name, value in settings.items():
            self._database.execute(f"SET GLOBAL {name} = {value}")
        for statement in macros():
            self._database.execute(statement)
        self.notifiers: Final = Notifiers(self._database)
        self._database.execute("SET lock_configuration = true")
        with _Connection(
            self._database, None
        ) as connection:  # what is imported once, is imported now
            connection.register("t0", pa.table({"a": [1]}))
            connection.query('SELECT "a" FROM "t0"', None).to_arrow_reader(1).read_all()
        self._catalogue_lock = threading.Lock()
        self._catalogues: list[PgCatalog] = []

    def close(self) -> None:
        """Close DuckDB. No query may be running."""
        self._database.close()

    def _catalogue(self, tables: Sequence[Table], session: SqlSession) -> PgCatalog:
        """Return the catalogue of some tables; the last ones are kept."""
        wanted = tuple(tables)
        with self._catalogue_lock:
            for catalogue in self._catalogues:
                if catalogue.is_of(wanted, session):
                    return catalogue
        catalogue = PgCatalog(wanted, session)
        with self._catalogue_lock:
            self._catalogues = [catalogue, *self._catalogues[: _KEPT_CATALOGUES - 1]]
        return catalogue

    def describe(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameter_oids: Sequence[int] = (),
    ) -> Description:
        """Return the types of a statement's parameters and result, without executing it.

        Args:
            statement: the statement.
            source: the tables that the user sees.
            session: the client's session.
            parameter_oids: the types that the client asks for; 0 where it leaves the choice.

        Raises:
            SqlError: the statement is wrong.
        """
        if statement.kind is StatementKind.SHOW:
            return Description((), _show_columns(statement))
        if statement.tree is None:
            return Description((), None)
        tables = source.tables()
        catalogue = partial(self._catalogue, tables, session)
        plan = _Plan(statement, tables, catalogue, session, parameter_oids)
        if statement.kind is StatementKind.EXPLAIN:
            return Description(plan.parameter_oids, _EXPLAIN_COLUMNS, tuple(plan.warnings))
        columns = self._result_columns(plan)
        result = columns if statement.kind is not StatementKind.DECLARE else None
        return Description(plan.parameter_oids, result, tuple(plan.warnings))

    def _result_columns(self, plan: _Plan) -> tuple[QueryColumn, ...]:
        """Return the columns of a query, before its scans are planned.

        Raises:
            SqlError: a column or a function does not exist, or types do not fit.
        """
        with _Connection(self._database, None) as connection:
            for relation, name in plan.names.items():
                connection.register(name, _empty(relation))
            try:
                relation_ = connection.query(plan.sql(as_null=True), None)
            except (duckdb.Error, RuntimeError) as error:
                return plan.fallback_columns(error)
            return plan.result_columns(relation_)

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

        Raises:
            SqlError: the statement is wrong, or fails before its first row.
        """
        cancellation = cancellation or Cancellation()
        cancellation.check()
        if statement.kind is StatementKind.SHOW:
            return _show(statement, session)
        if statement.tree is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"{statement.tag} has no result")
        started = time.monotonic()
        tables = source.tables()
        catalogue = partial(self._catalogue, tables, session)
        plan = _Plan(statement, tables, catalogue, session, parameter_oids, parameters)
        _check_parameter_count(plan, parameters)
        cancellation.check()
        is_explain = statement.kind is StatementKind.EXPLAIN
        is_executed = not is_explain or "ANALYZE" in statement.options
        if not is_executed:
            self._result_columns(plan)  # raises the errors that the query would
        plan.plan_scans(self._database, is_enabled=pushdown)
        cancellation.check()
        if not is_executed:
            lines = explain_lines([TimedScan(scan, None) for scan in plan.scans], None, None)
            return _explained(lines, plan)
        batches = self._run(plan, source, cancellation, started)
        columns, scans = next(batches)
        if is_explain:
            rows = sum(batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch))
            elapsed_s = time.monotonic() - started
            return _explained(explain_lines(scans, rows, elapsed_s), plan)
        return QueryResult(columns, batches, plan.warnings, scans)

    def plan_live(
        self,
        statement: Statement,
        source: TableSource,
        session: SqlSession,
        parameters: Sequence[object] = (),
        parameter_oids: Sequence[int] = (),
    ) -> LivePlan | None:
        """Return the plan of a SUBSCRIBE; None if its topic is no table.

        Raises:
            SqlError: the query cannot be live, or is wrong.
        """
        tables = source.tables()
        if statement.tree is None:
            live = statement.live
            return None if live is None or live.topic is None else plan_topic(tables, live.topic)
        catalogue = partial(self._catalogue, tables, session)
        plan = _Plan(statement, tables, catalogue, session, parameter_oids, parameters)
        _check_parameter_count(plan, parameters)
        plan.plan_scans(self._database, is_enabled=True)
        return plan_query(statement.tree, plan.tree, plan.scans, statement.offset + 1)

    def _run(
        self, plan: _Plan, source: TableSource, cancellation: Cancellation, started: float
    ) -> Iterator[pa.RecordBatch | tuple[tuple[QueryColumn, ...], list[TimedScan]]]:
        """Yield columns and scans, then the batches. The timeout counts from `started`."""
        self.notifiers.clear_error(plan.process_id)
        timeout_s = plan.timeout_s(self.limits)
        timer: threading.Timer | None = None
        streams: Sequence[RowStream] = ()
        if timeout_s > 0:
            left_s = timeout_s - (time.monotonic() - started)
            if left_s <= 0:
                cancellation.cancel(BY_TIMEOUT)
                cancellation.check()
            timer = threading.Timer(left_s, cancellation.cancel, (BY_TIMEOUT,))
            timer.daemon = True
            timer.start()
        try:
            with _Connection(self._database, cancellation) as connection:
                scans = _scan(plan.scans, source, cancellation)
                streams = [scan.stream for scan in scans if scan.stream is not None]
                for name, data in plan.registered(scans).items():
                    connection.register(name, data)
                try:
                    columns, batches = self._open(connection, plan, streams)
                except (duckdb.Error, RuntimeError) as error:
                    cancellation.check()
                    _raise_stream_error(streams)
                    self.notifiers.raise_error(plan.process_id)
                    columns = plan.fallback_columns(error)
                    yield columns, scans
                    return
                yield columns, scans
                for batch in batches:
                    cancellation.check()
                    yield _normalized(batch)
                cancellation.check()
        except SqlError as error:
            if error.sqlstate == QUERY_CANCELED:
                cancellation.check()
            raise
        except (duckdb.Error, OSError, RuntimeError, pa.ArrowException) as error:
            cancellation.check()
            _raise_stream_error(streams)
            self.notifiers.raise_error(plan.process_id)
            raise plan.translated(error) from None
        except MemoryError:
            raise duckdb_errors.translate(MemoryError("Out of Memory Error"), None) from None
        finally:
            for stream in streams:
                stream.close()
            if timer is not None:
                timer.cancel()

    def _open(
        self, connection: _Connection, plan: _Plan, streams: Sequence[RowStream]
    ) -> tuple[tuple[QueryColumn, ...], Iterator[pa.RecordBatch]]:
        """Return the columns and the rows of a query.

        The first rows of streams are read at once, so that most failures to read them are known
        before the client gets any.
        """
        relation = connection.query(plan.sql(), plan.values())
        columns = plan.result_columns(relation)
        reader = iter(relation.to_arrow_reader(self.limits.batch_rows))
        return columns, chain(list(islice(reader, 1)) if streams else (), reader)


def _raise_stream_error(streams: Sequence[RowStream]) -> None:
    """Raise the error that has ended a stream, if one has ended so."""
    for stream in streams:
        if stream.error is not None:
            raise stream.error from None


def _check_words(tree: exp.Expr) -> None:
    """Check the words that are written without quotes, such as the unit of EXTRACT.

    Raises:
        SqlError: it is more than a word, which DuckDB would read as something else.
    """
    for node in tree.find_all(exp.Var):
        if not _WORD.fullmatch(node.name):
            raise SqlError(SYNTAX_ERROR, f'syntax error at or near "{node.name[:60]}"')


class _Connection:
    """A connection to DuckDB for one query, which a cancellation interrupts.

    An interrupt has no effect on a query that DuckDB has not begun yet. So it is repeated until the
    query has ended.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, cancellation: Cancellation | None
    ) -> None:
        self._cursor = database.cursor()
        self._cancellation = cancellation
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> _Connection:
        if self._cancellation is not None:
            self._cancellation.on_cancel(self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
        if self._cancellation is not None:
            self._cancellation.remove(self._interrupt)
        self._cursor.close()

    def _interrupt(self) -> None:
        """Interrupt the query, now and until it has ended."""
        with self._lock:
            if self._is_closed:
                return
            self._cursor.interrupt()
        timer = threading.Timer(_INTERRUPT_INTERVAL_S, self._interrupt)
        timer.daemon = True
        timer.start()

    def register(self, name: str, data: pa.Table | RowStream) -> None:
        """Make a table known by a name."""
        self._cursor.register(name, data)

    def query(self, sql: str, values: Mapping[str, object] | None) -> duckdb.DuckDBPyRelation:
        """Return the relation of a query, whose rows are computed when they are read.

        Raises:
            SqlError: the text is not exactly one query.
        """
        statements = self._cursor.extract_statements(sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            # All of it has been checked as one query, so the text would mean something else.
            raise SqlError(SYNTAX_ERROR, "the statement cannot be read as one query")
        return self._cursor.sql(sql, params=dict(values)) if values else self._cursor.sql(sql)


class _Plan:
    """A query, from the client's tree to DuckDB's text.

    Attributes:
        statement: the statement.
        tree: the tree for DuckDB.
        parameter_oids: the types of its parameters.
        names: the names in DuckDB of relations that are not scanned by reference.
        scans: the scans of tables, after `plan_scans`.
        warnings: unknown parts of the catalogue.
    """

    def __init__(
        self,
        statement: Statement,
        tables: Sequence[Table],
        catalogue: Callable[[], PgCatalog],
        session: SqlSession,
        declared_oids: Sequence[int],
        parameters: Sequence[object] | None = None,
    ) -> None:
        if statement.tree is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"{statement.tag} has no result")
        self.statement = statement
        self._session = session
        self._parameters = dict(enumerate(parameters or (), 1))
        resolver = NameResolver(tables, catalogue, session)
        tree = statement.tree.copy()
        fold_identifiers(tree)
        self._output_names = output_names(tree)
        self._original = tree.copy()
        self.parameter_oids = infer_parameters(tree, resolver.bind(self._original), declared_oids)
        rewriter = ExpressionRewriter(
            session, resolver, self._parameters, is_execution=parameters is not None
        )
        alias_inner_columns(tree)
        tree = rewriter.rewrite(tree)
        _drop_schema_qualifiers(tree)
        self.references = resolver.bind(tree)
        self._versions = take_versions(tree, self.references)
        self.tree = tree
        self.warnings = list(dict.fromkeys(resolver.warnings))
        self.scans: list[PlannedScan] = []
        self.names: dict[Relation, str] = {}
        self._prefix = ""
        self._common: dict[str, str] = {}
        self._name_tables()

    def _name_tables(self) -> None:
        """Replace the names of tables, and of those in WITH, by names in DuckDB.

        No identifier of the query is such a name, so that none means anything else in DuckDB.
        """
        self._prefix = unused_prefix(self.tree)
        finder = CommonTables()
        read = {id(reference.node) for reference in self.references}
        common = [
            (node, table)
            for node in self.tree.find_all(exp.Table)
            if id(node) not in read and (table := finder.find(node)) is not None
        ]
        for node, table in common:  # names are found by the names that the client wrote
            _add_alias(node, table.alias)
        for index, table in enumerate(self.tree.find_all(exp.CTE)):
            name = f"{self._prefix}c{index}"
            self._common[name] = table.alias
            table.args["alias"].set("this", exp.to_identifier(name, quoted=True))
        for node, table in common:
            _set_name(node, table.alias)
        for reference in self.references:
            name = self.names.setdefault(reference.relation, f"{self._prefix}t{len(self.names)}")
            _add_alias(reference.node, reference.alias)
            _set_name(reference.node, name)
        _rename_columns(self.tree, self.references)

    def plan_scans(self, database: duckdb.DuckDBPyConnection, *, is_enabled: bool) -> None:
        """Decide on the scan of each table, and name their results."""
        self.scans = plan_scans(
            self.tree,
            self.references,
            self._parameters,
            is_enabled=is_enabled,
            evaluate_time=partial(self._evaluate_time, database),
            versions=self._versions,
        )
        requests: list[object] = []
        for scan in self.scans:
            if scan.request not in requests:
                requests.append(scan.request)
            index = requests.index(scan.request)
            name = f"{self._prefix}s{index}"
            _set_name(scan.reference.node, name)
            scan.reference.node.meta["scan"] = name

    def _evaluate_time(self, database: duckdb.DuckDBPyConnection, node: exp.Expr) -> int | None:
        """Return the microseconds since 1970 of an expression for a time.

        Returns:
            None if it is NULL, or cannot be evaluated.
        """
        select = exp.Select(expressions=[exp.Paren(this=node.copy())])
        values = self._values_in(select)
        type_parameters(select, self.parameter_oids, as_null=False)
        _check_words(select)
        text = f"SELECT epoch_us(CAST(({to_duckdb(select)}) AS TIMESTAMPTZ))"
        try:
            with _Connection(database, None) as connection:
                ((moment,),) = connection.query(text, values).fetchall()
        except (duckdb.Error, RuntimeError):
            return None
        return None if moment is None else int(moment)

    def registered(self, scans: Sequence[TimedScan]) -> dict[str, pa.Table | RowStream]:
        """Return the tables to register by their names in DuckDB."""
        tables: dict[str, pa.Table | RowStream] = {}
        for scan in scans:
            name = scan.planned.reference.node.meta["scan"]
            relation = scan.planned.reference.relation
            if scan.stream is not None:
                columns = [relation.column(column) for column in scan.planned.request.columns]
                if columns:
                    scan.stream.rename([column.physical if column else "" for column in columns])
                tables[name] = scan.stream
            elif scan.result is not None:
                tables[name] = _physical(relation, scan.result.data)
        for relation, name in self.names.items():
            if relation.table is None:
                tables[name] = _catalogue_data(relation)
        return tables

    def sql(self, *, as_null: bool = False) -> str:
        """Return the text for DuckDB; with NULLs for parameters, to describe the result."""
        tree = self.tree.copy()
        for node in list(tree.find_all(exp.Table)):
            _cast_columns(node, self._casts(node))
        type_parameters(tree, self.parameter_oids, as_null=as_null)
        _check_words(tree)
        self._check_bound(tree)
        return to_duckdb(tree)

    def _check_bound(self, tree: exp.Expr) -> None:
        """Raise an error if DuckDB would look for a name among its own tables, or for a file."""
        bound = {*self.names.values(), *self._common}
        bound.update(scan.reference.node.meta["scan"] for scan in self.scans)
        for node in tree.find_all(exp.Table):
            if isinstance(node.this, exp.Identifier):
                is_bound = not node.db and not node.catalog and node.name in bound
            else:
                is_bound = is_table_function(node.this)
            if not is_bound:
                raise SqlError(UNDEFINED_TABLE, f'relation "{node.name}" does not exist')

    def _casts(self, node: exp.Table) -> dict[str, str]:
        name = node.name
        for reference in self.references:
            if reference.node.name != name:
                continue
            scanned = None
            for scan in self.scans:
                if scan.reference is reference:
                    scanned = set(scan.request.columns)
            return {
                column.physical: column.cast or ""
                for column in reference.relation.columns
                if scanned is None or column.name in scanned
            }
        return {}

    def values(self) -> dict[str, object]:
        """Return the values of the parameters that the text has."""
        return self._values_in(self.tree)

    def _values_in(self, tree: exp.Expr) -> dict[str, object]:
        used = {int(node.this.name) for node in tree.find_all(exp.Parameter)}
        return {
            str(number): _plain(value)
            for number, value in self._parameters.items()
            if number in used
        }

    def result_columns(self, relation: duckdb.DuckDBPyRelation) -> tuple[QueryColumn, ...]:
        """Return the columns of a result."""
        names = self._output_names
        if names is None or len(names) != len(relation.columns):
            names = [self._logical.get(name, name) for name in relation.columns]
        if len(names) > MAX_COLUMNS:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"a result has at most {MAX_COLUMNS} columns")
        return tuple(
            QueryColumn(name, pg_types.result_oid(str(kind)))
            for name, kind in zip(names, relation.types, strict=True)
        )

    @property
    def _logical(self) -> dict[str, str]:
        return {
            column.physical: column.name
            for reference in self.references
            for column in reference.relation.columns
        }

    def translated(self, error: Exception) -> SqlError:
        """Return an error of DuckDB as the client gets it."""
        names = [column.name for item in self.references for column in item.relation.columns]
        if self._common and self._prefix in str(error):  # the client does not know these names
            text = re.sub(
                re.escape(self._prefix) + r"c\d+",
                lambda match: self._common.get(match[0], match[0]),
                str(error),
            )
            error = type(error)(text)
        return duckdb_errors.translate(error, self.statement.tree, names)

    def fallback_columns(self, error: Exception) -> tuple[QueryColumn, ...]:
        """Return the columns of an empty result, for a query of the catalogue that failed.

        Tools ask for parts of PostgreSQL's catalogue that are not here; an error would end them.

        Raises:
            SqlError: the query reads tables of the source, or none, or its columns are unknown.
        """
        translated = self.translated(error)
        is_catalogue = self.references and all(
            item.relation.table is None for item in self.references
        )
        is_resource = translated.sqlstate[:2] in ("57", "53", "54")
        if not is_catalogue or self._output_names is None or is_resource:
            raise translated
        self.warnings.append(f"catalogue query failed, answered empty: {translated.message}")
        return tuple(QueryColumn(name, 25) for name in self._output_names)

    @property
    def process_id(self) -> int:
        """The number of the session."""
        return self._session.process_id

    def timeout_s(self, limits: QueryLimits) -> float:
        """Return the longest time of the statement; 0 for any."""
        own = self._session.statement_timeout_s
        times = [value for value in (own, limits.statement_timeout_s) if value > 0]
        return min(times, default=0.0)


def _check_parameter_count(plan: _Plan, parameters: Sequence[object]) -> None:
    if len(parameters) < len(plan.parameter_oids):
        raise SqlError(
            PROTOCOL_VIOLATION,
            f"the statement requires {len(plan.parameter_oids)} parameters, "
            f"{len(parameters)} were supplied",
        )


# ---- trees


def _drop_schema_qualifiers(tree: exp.Expr) -> None:
    """Drop the schema from columns such as `amps.orders.qty`."""
    for column in tree.find_all(exp.Column):
        if column.args.get("db"):
            column.set("db", None)
            column.set("catalog", None)


def _add_alias(node: exp.Table, name: str) -> None:
    """Give a table an alias, if it has none, so that columns can be qualified by its old name."""
    alias = node.args.get("alias")
    if alias is None or not alias.this:
        columns = alias.columns if alias is not None else []
        this = exp.to_identifier(name, quoted=True)
        node.set("alias", exp.TableAlias(this=this, columns=columns))


def _set_name(node: exp.Table, name: str) -> None:
    node.set("this", exp.to_identifier(name, quoted=True))
    node.set("db", None)
    node.set("catalog", None)
    node.set("only", None)


def _rename_columns(tree: exp.Expr, references: Sequence[TableReference]) -> None:
    """Rename columns that differ from others of their table in case only."""
    renamed = {
        (reference.alias, column.name): column.physical
        for reference in references
        for column in reference.relation.columns
        if column.physical != column.name
    }
    if not renamed:
        return
    for column in tree.find_all(exp.Column):
        for (alias, name), physical in renamed.items():
            if column.name == name and column.table in ("", alias):
                column.set("this", exp.to_identifier(physical, quoted=True))


def _cast_columns(node: exp.Table, casts: Mapping[str, str]) -> None:
    """Replace a table by a subquery that casts its columns, if any needs it."""
    if not any(casts.values()):
        return
    columns = []
    for name, cast in casts.items():
        column: exp.Expr = exp.column(exp.to_identifier(name, quoted=True))
        if cast:
            kind = exp.DataType.build(cast, dialect="duckdb", udt=True)
            column = exp.Cast(this=column, to=kind)
        columns.append(exp.alias_(column, name, quoted=True))
    plain = exp.Table(this=node.this.copy())
    select = exp.Select(expressions=columns, from_=exp.From(this=plain))
    subquery = exp.Subquery(this=select, alias=node.args.get("alias"), joins=node.args.get("joins"))
    node.replace(subquery)


# ---- data


def _scan(
    scans: Sequence[PlannedScan], source: TableSource, cancellation: Cancellation
) -> list[TimedScan]:
    """Scan all tables as of one moment; equal requests are one."""
    requests = list(dict.fromkeys(scan.request for scan in scans))
    results: dict[ScanRequest, ScanResult] = {}
    elapsed_s = 0.0
    if requests:
        started = time.monotonic()
        results = dict(zip(requests, source.scan(requests), strict=True))
        elapsed_s = time.monotonic() - started
    timed_scans = [TimedScan(scan, results[scan.request], elapsed_s) for scan in scans]
    try:
        cancellation.check()
    except SqlError:
        for timed_scan in timed_scans:
            if timed_scan.stream is not None:
                timed_scan.stream.close()
        raise
    return timed_scans


def _physical(relation: Relation, data: pa.Table) -> pa.Table:
    """Return scanned columns by their names in DuckDB; a column, if there is none."""
    if not data.num_columns:
        return pa.table({"": pa.nulls(data.num_rows, pa.bool_())})
    columns = [relation.column(name) for name in data.column_names]
    return data.rename_columns([column.physical if column else "" for column in columns])


def _catalogue_data(relation: Relation) -> pa.Table:
    data = relation.data if relation.data is not None else pa.table({})
    arrays = {name: data.column(name) for name in data.column_names}
    for column in relation.columns:
        if column.name not in arrays:
            arrays[column.name] = pa.nulls(data.num_rows)
    if not arrays:
        return pa.table({"": pa.nulls(0, pa.bool_())})
    return pa.table({column.physical: arrays[column.name] for column in relation.columns})


def _empty(relation: Relation) -> pa.Table:
    if relation.table is None:
        return _catalogue_data(relation).slice(0, 0)
    if not relation.table.columns:
        return pa.table({"": pa.nulls(0, pa.bool_())})
    schema = pa.schema(
        [
            (column.physical, known.type.arrow_type)
            for column, known in zip(relation.columns, relation.table.columns, strict=True)
        ]
    )
    return schema.empty_table()


def _plain(value: object) -> object:
    """Return the value of a parameter as DuckDB takes it."""
    if isinstance(value, Decimal) and not value.is_finite():
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _normalized(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of the types that clients are told: no enumerations, structures and maps."""
    if not any(_is_unusual(field.type) for field in batch.schema):
        return batch
    arrays = [_usual(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _is_unusual(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_dictionary(kind)
        or types.is_null(kind)
        or types.is_nested(kind)
        or (types.is_timestamp(kind) and kind.unit != "us")
        or isinstance(kind, pa.BaseExtensionType)
    )


def _usual(column: pa.Array) -> pa.Array:
    kind = column.type
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _usual(column.storage)
    if types.is_dictionary(kind):
        return pc.cast(column, kind.value_type)
    if types.is_null(kind):
        return pc.cast(column, pa.string())
    if types.is_timestamp(kind) and kind.unit != "us":
        return pc.cast(column, pa.timestamp("us", kind.tz), safe=False)
    if types.is_list(kind) and not types.is_nested(kind.value_type):
        return pc.cast(column, pa.list_(_usual(column.values[:0]).type))
    if types.is_nested(kind):
        texts = [
            None if value is None else json.dumps(value, default=str, ensure_ascii=False)
            for value in column.to_pylist(maps_as_pydicts="lossy")
        ]
        return pa.array(texts, pa.string())
    return column


# ---- results that are no queries

_EXPLAIN_COLUMNS: Final = (QueryColumn("QUERY PLAN", 25),)


def _rows(
    columns: Sequence[QueryColumn], rows: Sequence[Sequence[str]], warnings: Sequence[str] = ()
) -> QueryResult:
    arrays = [pa.array([row[index] for row in rows], pa.string()) for index in range(len(columns))]
    names = [column.name for column in columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    return QueryResult(columns, iter([batch]), warnings)


def _explained(lines: Sequence[str], plan: _Plan) -> QueryResult:
    return _rows(_EXPLAIN_COLUMNS, [[line] for line in lines], plan.warnings)


def _show_columns(statement: Statement) -> tuple[QueryColumn, ...]:
    if statement.name == "ALL":
        return tuple(QueryColumn(name, 25) for name in ("name", "setting", "description"))
    return (QueryColumn((statement.name or "").lower(), 25),)


def _show(statement: Statement, session: SqlSession) -> QueryResult:
    columns = _show_columns(statement)
    if statement.name == "ALL":
        return _rows(columns, list(session.settings()))
    return _rows(columns, [[session.setting(statement.name or "") or ""]])
