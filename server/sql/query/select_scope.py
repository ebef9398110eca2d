"""The tables of a SELECT, for the columns that its conditions read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from server.sql.query.names import TableReference
from server.sql.query.tables import Column, SqlType, TableKind


class SelectScope:
    """The tables of one SELECT, for names in its WHERE.

    Attributes:
        candidates: the tables with rows that an outer join does not replace by NULLs.
    """

    def __init__(self, select: exp.Select, references: Sequence[TableReference]) -> None:
        by_node = {id(item.node): item for item in references}
        preserved: list[exp.Expr] = []
        self._is_plain = True
        from_ = select.args.get("from_")
        if from_ is not None:
            preserved.append(from_.this)
        everything = list(preserved)
        if select.args.get("laterals"):
            self._is_plain = False
        for join in select.args.get("joins") or ():
            side = str(join.args.get("side") or "").upper()
            everything.append(join.this)
            if side == "FULL":
                preserved = []
            elif side == "RIGHT":
                preserved = [join.this]
            elif side != "LEFT":
                preserved.append(join.this)
            if join.args.get("using") or join.args.get("method"):
                self._is_plain = False  # unqualified names are of both tables
        tables = [by_node[id(node)] for node in everything if id(node) in by_node]
        if len(tables) != len(everything):
            self._is_plain = False
        self._tables = tables
        self._aliases = [item.alias for item in tables]
        self.candidates = [
            by_node[id(node)]
            for node in preserved
            if id(node) in by_node
            and by_node[id(node)].relation.table is not None
            and not node.args.get("joins")
            and not (node.args.get("alias") and node.args["alias"].columns)
            and not node.args.get("sample")
        ]

    def owner(self, condition: exp.Expr) -> TableReference | None:
        """Return the only candidate whose columns a condition reads; None if there is no such."""
        if condition.find(exp.Query) is not None:
            return None
        owners: dict[int, TableReference] = {}
        for column in condition.find_all(exp.Column):
            reference = self._reference(column)
            if reference is None:
                return None
            owners[id(reference.node)] = reference
        if len(owners) != 1:
            return None
        (owner,) = owners.values()
        return owner if any(owner is item for item in self.candidates) else None

    def _reference(self, column: exp.Column) -> TableReference | None:
        if column.table:
            found = [item for item in self._tables if item.alias == column.table]
            return found[0] if len(found) == 1 and self._aliases.count(column.table) == 1 else None
        if not self._is_plain:
            return None
        found = [item for item in self._tables if item.relation.column(column.name) is not None]
        return found[0] if len(found) == 1 else None

    def time_column(self, node: exp.Expr) -> Column | None:
        """Return the column of a table in the order of time that a node is."""
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column):
            return None
        reference = self._reference(node)
        table = None if reference is None else reference.relation.table
        return self.column(node) if table and table.kind in _IN_ORDER_OF_TIME else None

    def column(self, node: exp.Expr) -> Column | None:
        """Return the column of the source that a node reads."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast):
            inner = self.column(node.this)
            return inner if inner is not None and _is_identity(node, inner) else None
        if not isinstance(node, exp.Column):
            return None
        reference = self._reference(node)
        if reference is None or reference.relation.table is None:
            return None
        known = reference.relation.column(node.name)
        return next(
            (
                item
                for item in reference.relation.table.columns
                if known and item.name == known.name
            ),
            None,
        )


_IN_ORDER_OF_TIME: Final = (TableKind.HISTORY, TableKind.STATISTICS)
_IDENTITIES: Final = {
    SqlType.TEXT: ("VARCHAR", "TEXT"),
    SqlType.BIGINT: ("BIGINT",),
    SqlType.DOUBLE: ("DOUBLE",),
    SqlType.BOOLEAN: ("BOOLEAN",),
}


def _is_identity(cast: exp.Cast, column: Column) -> bool:
    return cast.to.sql(dialect="duckdb").upper() in _IDENTITIES.get(column.type, ())
