"""Names in a query: the tables that it reads, and the columns of each.

A query never reaches DuckDB with names of tables as the client wrote them. Each is replaced by the
name of a relation that was registered for this query, so that nothing else can be read: no file, no
table function, no table of DuckDB's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.tables import SEARCH_PATH, Table
from server.sql.sqlstate import (
    DUPLICATE_ALIAS,
    FEATURE_NOT_SUPPORTED,
    UNDEFINED_FUNCTION,
    UNDEFINED_TABLE,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.query.pg_catalog import PgCatalog
    from server.sql.query.session import SqlSession

MAX_TABLES: Final = 200
"""The number of references to tables in one query."""

_CATALOGUE_SCHEMAS: Final = frozenset({"pg_catalog", "information_schema"})

_TABLE_FUNCTIONS: Final = frozenset(
    {"generate_subscripts", "json_each", "regexp_split_to_table", "string_to_table"}
)
"""Functions in FROM, besides `generate_series` and `unnest`, which have nodes of their own."""


_SCALAR_FUNCTIONS: Final = frozenset({"string_to_array", "current_schemas", "now", "version"})
"""Functions of one row in FROM."""


class RelationColumn(NamedTuple):
    """A column of a relation.

    Attributes:
        name: the name.
        oid: the OID of its type.
        cast: the type in DuckDB that the Arrow column is cast to; None if it has its type.
        physical: the name in DuckDB, where names that differ in case only are one.
    """

    name: str
    oid: int
    cast: str | None
    physical: str


class Relation:
    """A table that a query reads: a topic, or a relation of the catalogue.

    Attributes:
        schema: the schema.
        name: the name.
        columns: the columns, in order.
        table: the table of the source; None for relations of the catalogue.
        data: the rows of a relation of the catalogue.
        is_known: the catalogue has it; if not, it is empty.
    """

    def __init__(
        self,
        schema: str,
        name: str,
        columns: Sequence[tuple[str, int, str | None]],
        table: Table | None = None,
        data: pa.Table | None = None,
        *,
        is_known: bool = True,
    ) -> None:
        self.schema = schema
        self.name = name
        self.table = table
        self.data = data
        self.is_known = is_known
        self.columns: list[RelationColumn] = []
        self._by_name: dict[str, RelationColumn] = {}
        self._folded: dict[str, RelationColumn] = {}
        for column, oid, cast in columns:
            self.add_column(column, oid, cast)

    def add_column(self, name: str, oid: int, cast: str | None = None) -> None:
        """Add a column at the end."""
        folded = name.lower()
        physical = name if folded not in self._folded else f"{name}${len(self.columns)}"
        column = RelationColumn(name, oid, cast, physical)
        self.columns.append(column)
        self._by_name[name] = column
        self._folded.setdefault(folded, column)

    def column(self, name: str) -> RelationColumn | None:
        """Return a column by its name, in any case if no other is meant."""
        return self._by_name.get(name) or self._folded.get(name.lower())


class TableReference(NamedTuple):
    """A place in a query where a table is read.

    Attributes:
        node: the node; its alias is the name that columns are qualified with.
        relation: the table.
        alias: that name.
    """

    node: exp.Table
    relation: Relation
    alias: str


def relation_of(table: Table) -> Relation:
    """Return the relation of a table of the source."""
    columns = [
        (column.name, column.type.oid, "JSON" if column.type.name == "JSONB" else None)
        for column in table.columns
    ]
    return Relation(table.schema, table.name, columns, table)


class NameResolver:
    """Finds tables by their names, for one user at one time.

    Attributes:
        warnings: names of the catalogue that are unknown, for the log.
    """

    def __init__(
        self, tables: Sequence[Table], catalogue: Callable[[], PgCatalog], session: SqlSession
    ) -> None:
        self._session = session
        self._tables = {(table.schema, table.name): table for table in tables}
        self._folded = {(schema.lower(), name.lower()): table
                        for (schema, name), table in reversed(self._tables.items())}  # fmt: skip
        self._relations: dict[tuple[str, str], Relation] = {}
        self._find_catalogue = catalogue  # few queries need it
        self.warnings: list[str] = []

    def find(self, schema: str | None, name: str, position: int | None = None) -> Relation:
        """Return the table of a name.

        Raises:
            SqlError: there is none.
        """
        for place in (schema,) if schema else SEARCH_PATH:
            relation = self._find_in(place, name)
            if relation is not None:
                return relation
        place = schema or ("pg_catalog" if name.startswith("pg_") else "")
        if place in _CATALOGUE_SCHEMAS:
            return self._unknown(place, name)
        full = f"{schema}.{name}" if schema else name
        raise SqlError(
            UNDEFINED_TABLE,
            f'relation "{full}" does not exist',
            hint=self._suggestion(schema, name),
            position=position,
        )

    def class_oid(self, schema: str | None, name: str) -> int | None:
        """Return the OID of a table or a relation of the catalogue; None if there is none."""
        return self._find_catalogue().class_oid(schema, name)

    def namespace_oid(self, name: str) -> int | None:
        """Return the OID of a schema; None if there is none."""
        return self._find_catalogue().namespace_oid(name)

    def _find_in(self, schema: str, name: str) -> Relation | None:
        key = (schema, name)
        if key in self._relations:
            return self._relations[key]
        if schema in _CATALOGUE_SCHEMAS:
            relation = self._find_catalogue().relation(schema, name, self._session)
        else:
            table = self._tables.get(key) or self._folded.get((schema.lower(), name.lower()))
            relation = relation_of(table) if table else None
        if relation is not None:
            self._relations[key] = relation
        return relation

    def _unknown(self, schema: str, name: str) -> Relation:
        """Return an empty relation for a name of the catalogue that is unknown."""
        self.warnings.append(f"unknown catalogue relation {schema}.{name}")
        relation = Relation(schema, name, [], is_known=False)
        self._relations[schema, name] = relation
        return relation

    def _suggestion(self, schema: str | None, name: str) -> str | None:
        # Of tables with the same name, the first: topics come before their history.
        names = {table.name: table for table in reversed(self._tables.values())}
        matches = get_close_matches(name, names, n=1) or [
            known for known in names if known.lower() == name.lower()
        ]
        if matches:
            table = names[matches[0]]
            in_path = table.schema in SEARCH_PATH and not schema
            meant = quote(table.name) if in_path else f"{quote(table.schema)}.{quote(table.name)}"
            return f"Perhaps you meant {meant}."
        return None

    def bind(self, tree: exp.Expr) -> list[TableReference]:
        """Return all places where the tree reads tables, with the tables.

        Raises:
            SqlError: a table does not exist, or a table function is not allowed.
        """
        references: list[TableReference] = []
        common = CommonTables()
        for node in list(tree.find_all(exp.Table)):
            if not isinstance(node.this, exp.Identifier) and not self._is_relation(node):
                continue
            name, schema = node.name, node.db or None
            if common.find(node) is not None:
                continue
            position = node.this.meta.get("start")
            relation = self.find(schema, name, None if position is None else position + 1)
            references.append(TableReference(node, relation, node.alias or name))
            if len(references) > MAX_TABLES:
                raise SqlError(FEATURE_NOT_SUPPORTED, f"a query reads at most {MAX_TABLES} tables")
        for lateral in tree.find_all(exp.Lateral):
            self._check_lateral(lateral)
        self._complete(tree, references)
        return references

    @staticmethod
    def _check_lateral(node: exp.Lateral) -> None:
        function = node.this
        if isinstance(function, exp.Subquery | exp.Unnest | exp.Explode | exp.GenerateSeries):
            return
        if isinstance(function, exp.ExplodingGenerateSeries):
            return
        if function_name(function) not in _TABLE_FUNCTIONS:
            raise _not_a_table(function_name(function))

    def _is_relation(self, node: exp.Table) -> bool:
        """Return whether a function in FROM is read as a relation of the catalogue.

        Raises:
            SqlError: the function is not allowed there.
        """
        function = node.this
        if node.db in _CATALOGUE_SCHEMAS:
            node.set("db", None)
        if is_table_function(function):
            return False
        name = function_name(function)
        if name in _SCALAR_FUNCTIONS:
            alias = node.alias or name
            columns = [exp.alias_(function.copy(), alias, quoted=True)]
            this = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
            node.replace(exp.Subquery(this=exp.Select(expressions=columns), alias=this))
            return False
        if name.startswith("pg_"):
            self.warnings.append(f"unknown catalogue function {name}()")
            alias = node.alias or name
            node.set("this", exp.to_identifier(name, quoted=True))
            node.set("db", exp.to_identifier("pg_catalog", quoted=True))
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
            return True
        raise _not_a_table(name)

    def _complete(self, tree: exp.Expr, references: list[TableReference]) -> None:
        """Add the columns to relations of the catalogue that the query expects there."""
        catalogue = [item for item in references if item.relation.table is None]
        if not catalogue:
            return
        derived = {node.alias for node in tree.find_all(exp.Subquery, exp.CTE)}
        for column in tree.find_all(exp.Column):
            name, qualifier = column.name, column.table
            if not name or isinstance(column.this, exp.Star) or qualifier in derived:
                continue
            if not qualifier:
                if any(item.relation.column(name) for item in references):
                    continue
                unknown = [item for item in catalogue if not item.relation.is_known]
                if len(unknown) == 1:
                    unknown[0].relation.add_column(name, 25)
                continue
            for item in catalogue:
                if item.alias == qualifier and item.relation.column(name) is None:
                    if item.relation.is_known:
                        self.warnings.append(
                            f"unknown column {name} of {item.relation.schema}.{item.relation.name}"
                        )
                    item.relation.add_column(name, 25)


def _not_a_table(name: str) -> SqlError:
    return SqlError(
        UNDEFINED_FUNCTION,
        f"function {name}() cannot be read as a table",
        hint="Queries read topics, views, and the functions generate_series and unnest.",
    )


class CommonTables:
    """Finds common tables, those of WITH, by the names that FROM has for them.

    As in PostgreSQL, the query of a common table sees those before it, and those of the queries
    around; with RECURSIVE it sees itself, too. DuckDB differs in that, and it looks for a name that
    it does not see among its own tables; so `CommonTables` decides, and DuckDB gets other names.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[str, tuple[int, exp.CTE]]] = {}

    def find(self, node: exp.Table) -> exp.CTE | None:
        """Return the common table that a name means; None if it means another relation.

        Raises:
            SqlError: two common tables of one WITH have the same name.
        """
        if node.db or not isinstance(node.this, exp.Identifier):
            return None
        name = node.name
        child: exp.Expr = node
        while child.parent is not None:
            parent = child.parent
            if isinstance(parent, exp.With) and isinstance(child, exp.CTE):
                own, _ = self._of(parent)[child.alias]
                index, found = self._of(parent).get(name, (own + 1, child))
                if index < own or (index == own and parent.args.get("recursive")):
                    return found
                parent = parent.parent or parent  # its WITH was searched
            else:
                with_ = parent.args.get("with_")
                known = self._of(with_).get(name) if with_ is not None else None
                if known is not None:
                    return known[1]
            child = parent
        return None

    def _of(self, with_: exp.Expr) -> dict[str, tuple[int, exp.CTE]]:
        """Return the common tables of a WITH by name, with their places in it."""
        known = self._known.get(id(with_))
        if known is None:
            known = {cte.alias: (index, cte) for index, cte in enumerate(with_.expressions)}
            if len(known) != len(with_.expressions):
                raise SqlError(DUPLICATE_ALIAS, "a name of WITH is specified more than once")
            self._known[id(with_)] = known
        return known


def is_table_function(node: exp.Expr | None) -> bool:
    """Return whether a function may be called in FROM."""
    if isinstance(node, exp.GenerateSeries | exp.ExplodingGenerateSeries | exp.Explode):
        return True
    return isinstance(node, exp.Func) and function_name(node) in _TABLE_FUNCTIONS


def unused_prefix(tree: exp.Expr) -> str:
    """Return a prefix that no identifier has, in any case, for names that are made up."""
    names = {node.name.lower() for node in tree.find_all(exp.Identifier)}
    names = {name for name in names if name.startswith("_r")}
    prefix = "_r"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def function_name(node: exp.Expr) -> str:
    """Return the name of a function in lower case, without the quotes that it may have."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    if isinstance(node, exp.Func):
        return node.sql_name().lower()
    return node.sql(dialect="postgres")[:60]


def quote(name: str) -> str:
    """Return an identifier as it is written in SQL."""
    if re.fullmatch("[a-z_][a-z0-9_]*", name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def used_columns(tree: exp.Expr, references: Sequence[TableReference]) -> dict[int, set[str]]:
    """Return the names of columns that each reference needs, by the identity of its node.

    It may be more columns than necessary: every mention of the name counts, in any scope.
    """
    mentioned: set[tuple[str, str]] = set()
    aliases = {item.alias for item in references}
    everything: set[int] = set()
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            everything.update(id(item.node) for item in references if item.alias == column.table)
        elif not column.table and column.name in aliases:  # a whole row
            everything.update(id(item.node) for item in references if item.alias == column.name)
            mentioned.add(("", column.name.lower()))
        else:
            mentioned.add((column.table, column.name.lower()))
    for join in tree.find_all(exp.Join):
        mentioned.update(("", item.name.lower()) for item in join.args.get("using") or ())
        if join.args.get("method") == "NATURAL":
            everything.update(id(item.node) for item in references)
    for star in tree.find_all(exp.Star):
        parent = star.parent
        if isinstance(parent, exp.Select):
            everything.update(id(node) for node in sources(parent))
        elif not isinstance(parent, exp.Count | exp.Column):
            everything.update(id(item.node) for item in references)
    needed: dict[int, set[str]] = {}
    for item in references:
        alias = item.node.args.get("alias")
        is_whole = id(item.node) in everything or bool(alias and alias.columns)
        needed[id(item.node)] = {
            column.name
            for column in item.relation.columns
            if is_whole
            or ("", column.name.lower()) in mentioned
            or (item.alias, column.name.lower()) in mentioned
        }
    return needed


def sources(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes in FROM of a SELECT, also those within parentheses."""
    from_ = select.args.get("from_")
    pending = [from_.this] if from_ else []
    pending.extend(join.this for join in select.args.get("joins") or ())
    while pending:
        node = pending.pop()
        yield node
        pending.extend(join.this for join in node.args.get("joins") or ())
        if isinstance(node, exp.Subquery | exp.Paren) and isinstance(
            node.this, exp.Table | exp.Subquery | exp.Paren
        ):
            pending.append(node.this)


def find_position(node: object) -> int | None:
    """Return the offset of the first name in a node, from 1; None if it has none."""
    if not isinstance(node, exp.Expr):
        return None
    starts = [found.meta["start"] for found in node.walk() if "start" in found.meta]
    return min(starts) + 1 if starts else None
