"""The plan of a query: from the client's tree to the text for DuckDB, and the scans of its tables.

Clients never send statements to DuckDB: it gets a SELECT that is written here, with names of tables
that the query is given (`names`) and functions that are allowed (`rewrite`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from sqlglot import exp

from server.sql.query import duckdb_errors, pg_types
from server.sql.query.as_of import take_versions
from server.sql.query.column_names import alias_inner_columns, output_names
from server.sql.query.dialect import to_duckdb
from server.sql.query.errors import DuckDbError, SqlError
from server.sql.query.joined_names import check_distinct_tables, resolve_natural_joins
from server.sql.query.literals import type_literals
from server.sql.query.names import (
    CommonTables,
    NameResolver,
    Relation,
    TableReference,
    is_table_function,
    unused_prefix,
)
from server.sql.query.parameters import infer_parameters, type_parameters
from server.sql.query.pg_functions import VECTORS
from server.sql.query.pushdown import PlannedScan, plan_scans, resolve_moment
from server.sql.query.results import QueryColumn
from server.sql.query.rewrite import ExpressionRewriter, fold_identifiers
from server.sql.query.tables import AsOf, ScanRequest, ScanResult, Table
from server.sql.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    PROTOCOL_VIOLATION,
    SYNTAX_ERROR,
    UNDEFINED_TABLE,
)

if TYPE_CHECKING:
    from server.sql.query.pg_catalog import PgCatalog
    from server.sql.query.query_engine import PlanEvaluator
    from server.sql.query.session import SqlSession
    from server.sql.query.statement import Statement
    from server.sql.tables.history_stream import HistoryStream

MAX_COLUMNS: Final = 1600
"""The number of columns of a result: that of PostgreSQL."""

_NULL_TYPE: Final = '"NULL"'
"""DuckDB's type of a NULL without a type, which is a text for clients."""

_VECTOR_OIDS: Final = {"SMALLINT[]": 22, "UINTEGER[]": 30}
"""Types of columns of the catalogue that clients read as int2vector and oidvector."""

_WORD: Final = re.compile(r"[A-Za-z0-9_]+")


class QueryPlan:
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
        evaluator: PlanEvaluator,
        declared_oids: Sequence[int],
        parameters: Sequence[object] | None = None,
    ) -> None:
        if statement.tree is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"{statement.tag} has no result")
        self.statement = statement
        self._session = session
        self._evaluator = evaluator
        self._parameters = dict(enumerate(parameters or (), 1))
        resolver = NameResolver(tables, catalogue, session)
        tree = statement.tree.copy()
        fold_identifiers(tree)
        self._output_names = output_names(tree)
        self._original = tree.copy()
        references = resolver.bind(self._original)
        check_distinct_tables(self._original, references)
        self.parameter_oids = infer_parameters(tree, references, declared_oids)
        rewriter = ExpressionRewriter(
            session,
            resolver,
            self._parameters,
            evaluator.refused_functions,
            is_execution=parameters is not None,
        )
        alias_inner_columns(tree)
        tree = rewriter.rewrite(tree)
        _drop_schema_qualifiers(tree)
        self.references = resolver.bind(tree)
        type_literals(tree, self.references)
        resolve_natural_joins(tree, self.references)
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

    def plan_scans(self, *, is_enabled: bool) -> None:
        """Decide on the scan of each table, and name their results."""
        self.scans = plan_scans(
            self.tree,
            self.references,
            self._parameters,
            is_enabled=is_enabled,
            evaluate_time=self._evaluate_time,
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

    def resolve_as_of(self, version: exp.Version) -> AsOf:
        """Return the moment of a SUBSCRIBE TO, whose value is the only column of the query.

        Raises:
            SqlError: not a time, or no bookmark.
        """
        resolved = version.copy()
        resolved.set("expression", self.tree.expressions[0].unalias().copy())
        return resolve_moment(resolved, self._parameters, self._evaluate_time)

    def _evaluate_time(self, node: exp.Expr) -> int | None:
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
            moment = self._evaluator.evaluate(text, values)
        except DuckDbError:
            return None
        return None if moment is None else int(str(moment))

    def tables(
        self, results: Mapping[ScanRequest, ScanResult]
    ) -> dict[str, pa.Table | HistoryStream]:
        """Return the tables by their names in DuckDB, with the rows of their scans."""
        tables: dict[str, pa.Table | HistoryStream] = {}
        for scan in self.scans:
            data = results[scan.request].data
            name = scan.reference.node.meta["scan"]
            relation = scan.reference.relation
            if isinstance(data, pa.Table):
                tables[name] = _physical(relation, data)
            else:
                columns = [relation.column(column) for column in scan.request.columns]
                if columns:
                    data.rename([column.physical if column else "" for column in columns])
                tables[name] = data
        for relation, name in self.names.items():
            if relation.table is None:
                tables[name] = _catalogue_data(relation)
        return tables

    def empty_tables(self) -> dict[str, pa.Table]:
        """Return the tables by their names in DuckDB, without rows, to describe the result."""
        return {name: _empty(relation) for relation, name in self.names.items()}

    @cached_property
    def final_sql(self) -> str:
        """The text for DuckDB, once the scans are planned."""
        return self.sql()

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
        return self._values_in(self.tree) if self._parameters else {}

    def _values_in(self, tree: exp.Expr) -> dict[str, object]:
        used = {int(node.this.name) for node in tree.find_all(exp.Parameter)}
        return {
            str(number): _plain(value)
            for number, value in self._parameters.items()
            if number in used
        }

    def result_columns(
        self, duckdb_names: Sequence[str], types: Sequence[str]
    ) -> tuple[QueryColumn, ...]:
        """Return the columns of a result.

        Args:
            duckdb_names: their names in DuckDB.
            types: their types in DuckDB.
        """
        names = self._output_names
        if names is None or len(names) != len(duckdb_names):
            names = [self._logical.get(name, name) for name in duckdb_names]
        if len(names) > MAX_COLUMNS:
            raise SqlError(FEATURE_NOT_SUPPORTED, f"a result has at most {MAX_COLUMNS} columns")
        is_catalogue = all(item.relation.table is None for item in self.references)
        vectors = VECTORS if is_catalogue else frozenset()
        return tuple(
            QueryColumn(
                name,
                _VECTOR_OIDS[kind]
                if name in vectors and kind in _VECTOR_OIDS
                else pg_types.result_oid(kind),
                "VARCHAR" if kind == _NULL_TYPE else kind,
            )
            for name, kind in zip(names, types, strict=True)
        )

    @property
    def _logical(self) -> dict[str, str]:
        return {
            column.physical: column.name
            for reference in self.references
            for column in reference.relation.columns
        }

    def translated(self, error: DuckDbError) -> SqlError:
        """Return an error of DuckDB as the client gets it."""
        names = [column.name for item in self.references for column in item.relation.columns]
        if self._common and self._prefix in str(error):  # the client does not know these names
            text = re.sub(
                re.escape(self._prefix) + r"c\d+",
                lambda match: self._common.get(match[0], match[0]),
                str(error),
            )
            error = DuckDbError(error.kinds, text)
        return duckdb_errors.translate(error, self.statement.tree, names)

    def fallback_columns(self, error: DuckDbError) -> tuple[QueryColumn, ...]:
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

    def check_parameter_count(self) -> None:
        """Raise an error if there are fewer values than parameters."""
        if len(self._parameters) < len(self.parameter_oids):
            raise SqlError(
                PROTOCOL_VIOLATION,
                f"the statement requires {len(self.parameter_oids)} parameters, "
                f"{len(self._parameters)} were supplied",
            )


# ---- checks


def _check_words(tree: exp.Expr) -> None:
    """Check the words that are written without quotes, such as the unit of EXTRACT.

    Raises:
        SqlError: it is more than a word, which DuckDB would read as something else.
    """
    for node in tree.find_all(exp.Var):
        if not _WORD.fullmatch(node.name):
            raise SqlError(SYNTAX_ERROR, f'syntax error at or near "{node.name[:60]}"')


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
