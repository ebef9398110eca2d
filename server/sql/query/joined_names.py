"""Names of the tables that a FROM joins: each is there once, and NATURAL JOIN leaves out metadata.

Source: PostgreSQL documentation, 7.2.1 (The FROM Clause).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.names import CommonTables, TableReference, find_position
from server.sql.sqlstate import DUPLICATE_ALIAS

Names: TypeAlias = list[str]
"""Names of columns, in order."""


def check_distinct_tables(tree: exp.Expr, references: Sequence[TableReference]) -> None:
    """Check that no FROM has two tables of the same name.

    Different tables may have the same name in different schemas, if they have no aliases.

    Raises:
        SqlError: a name is used twice.
    """
    relations = {id(item.node): item.relation for item in references}
    for select in tree.find_all(exp.Select):
        known: dict[str, exp.Expr] = {}
        for node in _named_sources(select):
            name = node.alias_or_name
            other = known.setdefault(name, node)
            if other is node:
                continue
            tables = [relations.get(id(item)) for item in (node, other) if not item.alias]
            if len(tables) < 2 or None in tables or tables[0] is tables[1]:
                raise SqlError(
                    DUPLICATE_ALIAS,
                    f'table name "{name}" specified more than once',
                    position=find_position(node),
                )


def _named_sources(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes in FROM whose names qualify columns, in order."""
    from_ = select.args.get("from_")
    pending = [from_.this] if from_ else []
    pending += [join.this for join in select.args.get("joins") or ()]
    while pending:
        node = pending.pop(0)
        if node.alias_or_name:
            yield node
        inner = [join.this for join in node.args.get("joins") or ()]
        is_group = isinstance(node, exp.Subquery | exp.Paren) and not node.alias
        if is_group and isinstance(node.this, exp.Table | exp.Subquery | exp.Paren):
            inner.append(node.this)
        pending = inner + pending


def resolve_natural_joins(tree: exp.Expr, references: Sequence[TableReference]) -> None:
    """Replace NATURAL JOIN by USING with the common columns that are no metadata.

    A join with a table without known columns, such as a function, stays as it is.
    """
    resolver = _NaturalJoins(references)
    for join in list(tree.find_all(exp.Join)):
        if join.args.get("method") == "NATURAL":
            resolver.resolve(join)


class _NaturalJoins:
    """Finds the columns of both sides of joins."""

    def __init__(self, references: Sequence[TableReference]) -> None:
        self._by_node: Final = {id(item.node): item for item in references}
        self._common: Final = CommonTables()
        self._metadata: Final = {
            column.name
            for item in references
            if item.relation.table is not None
            for column in item.relation.table.columns
            if column.is_metadata
        }

    def resolve(self, join: exp.Join) -> None:
        """Replace a NATURAL JOIN, if the columns of both sides are known."""
        owner = join.parent
        assert owner is not None  # noqa: S101 - a join belongs to a SELECT, or to a table
        left = self._left(owner, join)
        right = self._columns(join.this)
        if left is None or right is None:
            return
        common = [name for name in left if name in right and name not in self._metadata]
        join.set("method", None)
        if common:
            join.set("using", [exp.to_identifier(name, quoted=True) for name in common])
        elif join.args.get("side"):
            join.set("on", exp.true())
        else:
            join.set("kind", "CROSS")

    def _left(self, owner: exp.Expr, until: exp.Join | None = None) -> Names | None:
        """Return the columns of the tables of a FROM, up to a join."""
        if isinstance(owner, exp.Select):
            from_ = owner.args.get("from_")
            names = self._columns(from_.this) if from_ else None
        else:
            names = self._own_columns(owner)
        for join in owner.args.get("joins") or ():
            if join is until:
                break
            right = self._columns(join.this)
            if names is None or right is None:
                return None
            merged = {item.name for item in join.args.get("using") or ()}
            if join.args.get("method") == "NATURAL":
                return None  # it could not be resolved
            names = names + [name for name in right if name not in merged]
        return names

    def _columns(self, node: exp.Expr) -> Names | None:
        """Return the columns of a table with all that is joined to it in its parentheses."""
        names = self._left(node) if node.args.get("joins") else self._own_columns(node)
        alias = node.args.get("alias")
        if names is None or alias is None or not alias.columns:
            return names
        renamed = [column.name for column in alias.columns]
        return renamed + names[len(renamed) :]

    def _own_columns(self, node: exp.Expr) -> Names | None:
        reference = self._by_node.get(id(node))
        if reference is not None:
            return [column.name for column in reference.relation.columns]
        if isinstance(node, exp.Table):
            common = self._common.find(node)
            return None if common is None else self._columns(common)
        if isinstance(node, exp.Subquery | exp.Paren | exp.CTE):
            return self._columns(node.this)
        if isinstance(node, exp.SetOperation):
            return self._columns(node.this)
        return self._outputs(node) if isinstance(node, exp.Select) else None

    def _outputs(self, select: exp.Select) -> Names | None:
        names: Names = []
        for item in select.expressions:
            if isinstance(item, exp.Star) and not any(item.args.values()):
                found = self._left(select)
            elif item.find(exp.Star) is not None and not item.alias:
                found = None
            else:
                found = [item.alias_or_name]
            if found is None:
                return None
            names += found
        return names
