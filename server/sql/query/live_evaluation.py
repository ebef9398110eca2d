"""Live queries with expressions: DuckDB evaluates them, some rows at a time.

Each batch of changed rows is a table of its own for the query, so expressions and conditions mean
exactly what they mean in any other query. A row that a record had before is evaluated again when it
is removed, so they must depend on the row alone: `live_terms` refuses all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from server.sql.query.errors import DuckDbError
from server.sql.query.processes.process_query import QueryText
from server.sql.query.tables import Column, ScanResult, SqlType, Table

if TYPE_CHECKING:
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.processes.process_pool import ProcessPool
    from server.sql.query.pushdown import PlannedScan
    from server.sql.query.query_plan import QueryPlan
    from server.sql.query.results import QueryColumn
    from server.sql.query.tables import ScanRequest, TableSource


class NumberedTables:
    """A `TableSource` of which one table has one more column: the number of the row.

    It is for plans only: batches of rows are given to `LiveEvaluation`.

    Args:
        source: the tables.
        table: the table with the column.

    Attributes:
        row_column: the name of the column, which no other column of the table has.
    """

    def __init__(self, source: TableSource, table: Table) -> None:
        names = {column.name.lower() for column in table.columns}
        name = "_row"
        while name in names:
            name = f"_{name}"
        self.row_column: Final = name
        numbered = table._replace(columns=(*table.columns, Column(name, SqlType.BIGINT)))
        # by name: the tables may have been listed anew since the query was planned
        named = table.schema, table.name
        self._tables: Final = [
            numbered if (one.schema, one.name) == named else one for one in source.tables()
        ]

    def tables(self) -> Sequence[Table]:
        """See `TableSource.tables`."""
        return self._tables

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """See `TableSource.scan`; these tables are never scanned."""
        raise NotImplementedError(requests)


def with_row_number(tree: exp.Expr, table: Table, row_column: str) -> exp.Expr:
    """Return a live query that has no star, and the number of the row as last column.

    Args:
        tree: the query, with folded identifiers.
        table: its table.
        row_column: the name of the column.
    """
    numbered = tree.copy()
    node = numbered.args["from_"].this
    qualifier = node.alias_or_name

    def column(name: str) -> exp.Expr:
        return exp.column(name, table=qualifier, quoted=True)

    items: list[exp.Expr] = []
    for item in numbered.expressions:
        is_own = not isinstance(item, exp.Column) or item.table in ("", qualifier)
        if item.is_star and is_own:
            items += [column(one.name) for one in table.columns]
        else:
            items.append(item)
    numbered.set("expressions", [*items, column(row_column)])
    return numbered


class LiveEvaluation:
    """Evaluates a live query for batches of rows; used by one thread at a time.

    Args:
        plan: the query; its last column is the number of the row.
        pool: executes it.
        user: the user that it is for.
        row_column: the name of that column in the scanned table.

    Attributes:
        columns: the columns of the result, once a batch has been evaluated.
    """

    def __init__(self, plan: QueryPlan, pool: ProcessPool, user: str, row_column: str) -> None:
        self.columns: Sequence[QueryColumn] = ()
        self._plan: Final = plan
        self._pool: Final = pool
        self._user: Final = user
        self._row_column: Final = row_column
        self._scan: Final[PlannedScan] = plan.scans[0]

    def evaluate(
        self, rows: pa.Table, cancellation: Cancellation
    ) -> tuple[pa.Array, Sequence[pa.Array]]:
        """Return the numbers of the rows that meet the condition, ascending, and their columns.

        Args:
            rows: the columns of the scan, without the number of the row.
            cancellation: ends the evaluation.

        Raises:
            SqlError: an expression fails for a row.
        """
        numbers = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.append_column(self._row_column, numbers)
        request = self._scan.request
        tables = self._plan.tables({request: ScanResult(numbered.select(list(request.columns)))})
        text = QueryText(self._plan.sql(), self._plan.values(), tables, max(rows.num_rows, 1))
        try:
            query = self._pool.open(text, self._user, cancellation)
            batches = list(query.batches())
        except DuckDbError as error:
            cancellation.check()
            raise self._plan.translated(error) from None
        self.columns = self._plan.result_columns(query.names, query.types)[:-1]
        if not batches:
            return pa.array([], pa.int64()), [pa.nulls(0) for _ in self.columns]
        result = pa.Table.from_batches(batches).combine_chunks()
        *columns, found = (column.combine_chunks() for column in result.columns)
        order = pc.sort_indices(found)
        return found.take(order), [column.take(order) for column in columns]
