"""The plans of queries that are kept, since tools and services send the same texts again and again.

Planning takes as long as DuckDB takes for some thousand records. A plan is used again for an equal
text, if it depends on nothing but the text and the tables: the query has no parameters, and only
parts that mean the same in every session. Tables are compared with those that the user sees at the
moment, column by column. A plan contains no entitlement, which the scan applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot import exp

from server.sql.query.lru_cache import LruCache
from server.sql.query.scan_only_plan import KINDS, PLAIN_NODES, is_plain
from server.sql.query.tables import Table, find_table

if TYPE_CHECKING:
    from server.sql.query.query_plan import QueryPlan
    from server.sql.query.statement import Statement

_MAX_PLANS: Final = 128
_MAX_TEXT_LENGTH: Final = 1_000
"""Characters of a statement, beyond which its plan is not kept."""

_NODES: Final = PLAIN_NODES - {exp.Parameter} | {
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Distinct),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Abs, exp.Round),
    *(exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Join),
    *(exp.Case, exp.If, exp.Coalesce, exp.Lower, exp.Upper),
}


class _KeptPlan(NamedTuple):
    """A plan, with its dependencies.

    Attributes:
        tree: the statement, so that no other one gets the same identity.
        tables: the tables, with the schema and the name by which the statement names them.
        plan: the plan, which is complete.
    """

    tree: exp.Expr
    tables: tuple[tuple[str | None, str, Table], ...]
    plan: QueryPlan


class KeptPlans:
    """The plans of an instance that were used last; methods may be called from several threads."""

    def __init__(self) -> None:
        self._plans: Final = LruCache[tuple[int, str], _KeptPlan](_MAX_PLANS)

    def find(self, statement: Statement, tables: Sequence[Table], user: str) -> QueryPlan | None:
        """Return the plan of a statement; None if there is none for these tables.

        Args:
            statement: the statement.
            tables: the tables that the user sees; none for no plan.
            user: the user.
        """
        kept = self._plans.get((id(statement.tree), user)) if tables else None
        if kept is None:
            return None
        is_same = all(
            find_table(tables, schema, name) == table for schema, name, table in kept.tables
        )
        return kept.plan if is_same else None

    def keep(self, statement: Statement, user: str, plan: QueryPlan) -> None:
        """Keep a plan with its scans, if it may be used again.

        Args:
            statement: the statement.
            user: the user.
            plan: the plan; it is not changed any more.
        """
        tree = statement.tree
        if tree is None or len(statement.text) > _MAX_TEXT_LENGTH:
            return
        if not all(is_plain(node, _NODES) for node in tree.walk()):
            return
        read = [one.relation.table for one in plan.references if one.relation.table is not None]
        named = [(node.db or None, node.name) for node in tree.find_all(exp.Table)]
        found = [(schema, name, find_table(read, schema, name)) for schema, name in named]
        tables = tuple((schema, name, table) for schema, name, table in found if table is not None)
        is_whole = len(tables) == len(named) == len(read) == len(plan.references)
        if is_whole and all(table.kind in KINDS for table in read):
            self._plans.put((id(tree), user), _KeptPlan(tree, tables, plan))
