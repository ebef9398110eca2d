"""Plans of queries that a scan answers by itself, without DuckDB and its process.

    SELECT id, o.qty AS q, 1, 'x' FROM orders o WHERE id = $1 AND qty > 5 LIMIT 10 OFFSET 5
    SELECT *
    SELECT 1

These are queries of constants only, and queries of one topic, view or queue that name columns and
constants, with conditions that the record store decides exactly (`pushdown`). The rows, their types
and their order are those that DuckDB would return. All other queries are executed by DuckDB, as
are those with a condition that is not exact for the values of their parameters.

A plan is made from the tree of the query, and depends on nothing else but the types of parameters,
and the table as the user sees it. So it is kept with the tree, which prepared statements and equal
texts have in common, and is used again for the same user, as long as the name means a table with
the same columns. It contains no entitlement: the scan applies that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from server.sql.query import pg_types
from server.sql.query.column_names import output_names
from server.sql.query.duckdb_errors import translate
from server.sql.query.errors import DuckDbError, SqlError
from server.sql.query.literals import type_literals
from server.sql.query.lru_cache import LruCache
from server.sql.query.names import TableReference, relation_of
from server.sql.query.parameters import infer_parameters
from server.sql.query.processes.protocol import ROW_TOO_LARGE
from server.sql.query.processes.result_batches import RowTooLargeError, result_batches
from server.sql.query.pushdown import ExactScan, plan_exact_scan
from server.sql.query.query_plan import MAX_COLUMNS
from server.sql.query.results import Description, QueryColumn
from server.sql.query.rewrite import fold_identifiers
from server.sql.query.statement import Statement
from server.sql.query.tables import ScanRequest, SqlType, Table, TableKind, find_table

MAX_RESULT_BYTES: Final = 512 * 1024
"""The size of the rows of a result that the server keeps until the client has read them; larger
ones are kept by a query process."""

MAX_SCAN_BYTES: Final = 4 * 1024 * 1024
"""The memory of the records that are scanned for that."""

_MAX_PLANS: Final = 256
_MAX_TEXT_LENGTH: Final = 2_000
"""Characters of a statement, beyond which its plan is not kept."""

KINDS: Final = frozenset(
    {TableKind.TOPIC, TableKind.VIEW, TableKind.CONFLATED, TableKind.QUEUE}
)  # others are streams, or have an order of time
"""The kinds of tables that are scanned."""
PLAIN_NODES: Final = frozenset(
    {
        *(exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Alias, exp.Identifier, exp.Column),
        *(exp.Star, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Parameter, exp.Where),
        *(exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
        *(exp.In, exp.Between, exp.Is, exp.Like, exp.Limit, exp.Offset, exp.Cast, exp.DataType),
    }
)
"""The kinds of nodes of queries that a scan answers."""

_CAST_TYPES: Final = frozenset(
    {
        *(exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.BOOLEAN, exp.DType.SMALLINT),
        *(exp.DType.INT, exp.DType.BIGINT, exp.DType.DOUBLE),
    }
)
_SELECT_PARTS: Final = frozenset({"expressions", "from_", "where", "limit", "offset"})
_TABLE_PARTS: Final = frozenset({"this", "db", "alias"})
_NO_COLUMNS: Final = frozenset({"user", "current_role"})
"""Names without quotes that are functions."""

_SAMPLES: Final[Mapping[int, object]] = {
    16: True,
    20: 1,
    21: 1,
    23: 1,
    25: "x",
    701: 1.5,
    1043: "x",
}
"""Values of parameters by their types, to find out whether conditions fit the types."""

_INTEGER_MAX: Final = 2**31 - 1
_BIGINT_MAX: Final = 2**63 - 1


class _Constant(NamedTuple):
    """A constant in the list of a SELECT: its value, and its type in DuckDB and Arrow."""

    value: object
    duckdb_type: str
    arrow_type: pa.DataType


class ScanOnlyPlan:
    """A query that a scan answers.

    Args:
        tree: the query, with folded identifiers.
        reference: its table; None if it reads none.
        outputs: the columns of the table, and constants, that it returns.
        names: the names of the result's columns.
        parameter_oids: the types of its parameters.

    Attributes:
        is_point_query: whether it reads no table, or probably the record of a key only.
    """

    def __init__(
        self,
        tree: exp.Select,
        reference: TableReference | None,
        outputs: Sequence[str | _Constant],
        names: Sequence[str],
        parameter_oids: tuple[int, ...],
    ) -> None:
        self.parameter_oids: Final = parameter_oids
        self._tree: Final = tree
        self._reference: Final = reference
        self._outputs: Final = outputs
        self._table: Final = None if reference is None else reference.relation.table
        columns = {} if self._table is None else {one.name: one for one in self._table.columns}
        types = [
            output.duckdb_type
            if isinstance(output, _Constant)
            else columns[output].type.duckdb_name
            for output in outputs
        ]
        self.columns: Final = tuple(
            QueryColumn(name, pg_types.result_oid(type_), type_)
            for name, type_ in zip(names, types, strict=True)
        )
        self._wanted: Final = {output for output in outputs if isinstance(output, str)}
        self.is_point_query: Final = self._table is None or _names_key(tree, self._table)

    def is_of(self, tables: Sequence[Table]) -> bool:
        """Return whether the name of the table still means it, with the same columns."""
        if self._table is None or self._reference is None:
            return True
        node = self._reference.node
        return find_table(tables, node.db or None, node.name) == self._table

    @property
    def has_table(self) -> bool:
        """Whether there is something to scan."""
        return self._table is not None

    def scan(self, parameters: Sequence[object]) -> ExactScan | None:
        """Return the scan for some parameters; None if DuckDB has to do the rest."""
        if self._reference is None:
            return ExactScan(None, None, 0)
        return plan_exact_scan(self._tree, self._reference, dict(enumerate(parameters, 1)))

    def request(self, scan: ExactScan) -> ScanRequest:
        """Return the request of a scan."""
        assert self._table is not None  # noqa: S101 - see `has_table`
        wanted = self._wanted.union(name for name, _ in scan.texts)
        scanned = tuple(one.name for one in self._table.columns if one.name in wanted)
        limit = None if scan.texts else scan.limit
        return ScanRequest(self._table, scanned, scan.filter, limit, max_bytes=MAX_SCAN_BYTES)

    def describe(self) -> Description | None:
        """Return the parameters and columns; None if conditions may not fit their types."""
        if any(oid not in _SAMPLES for oid in self.parameter_oids):
            return None
        if self.scan([_SAMPLES[oid] for oid in self.parameter_oids]) is None:
            return None
        return Description(self.parameter_oids, self.columns)

    def select_rows(self, data: pa.Table, scan: ExactScan) -> pa.Table:
        """Return the rows of a scan that pass all conditions."""
        data = _decoded(data)
        if not scan.texts:  # the scan has kept to the limit
            return data
        for name, texts in scan.texts:
            data = data.filter(pc.is_in(data.column(name), pa.array(texts, pa.string())))
        return data if scan.limit is None else data.slice(0, scan.limit)

    def batches(
        self, data: pa.Table | None, skipped: int, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result.

        Args:
            data: the rows of the scan; None for one row without a table.
            skipped: the number of rows to leave out at the beginning.
            batch_rows: the maximum number of rows of a batch.

        Raises:
            SqlError: a row is too large.
        """
        count = 1 if data is None else data.num_rows
        for start in range(skipped, count, batch_rows):
            rows = min(batch_rows, count - start)
            arrays = [
                pa.array([output.value] * rows, output.arrow_type)
                if isinstance(output, _Constant)
                else _one_array(data, output, start, rows)
                for output in self._outputs
            ]
            names = [column.name for column in self.columns]
            try:
                yield from result_batches(pa.RecordBatch.from_arrays(arrays, names=names))
            except RowTooLargeError as error:
                raise translate(DuckDbError((ROW_TOO_LARGE,), str(error)), None) from None


class _KeptPlan(NamedTuple):
    """A plan with its tree, so that no other tree gets the same identity."""

    tree: exp.Expr
    plan: ScanOnlyPlan


class ScanOnlyPlans:
    """The plans of an instance, of which the last ones are kept."""

    def __init__(self) -> None:
        self._plans: Final = LruCache[tuple[int, tuple[int, ...], str], _KeptPlan](_MAX_PLANS)

    def is_point_query(self, statement: Statement, oids: Sequence[int], user: str) -> bool:
        """Return whether a statement has a plan, by which it reads few records; see `find`."""
        kept = self._plans.get((id(statement.tree), tuple(oids), user))
        return kept is not None and kept.plan.is_point_query

    def find(
        self, statement: Statement, tables: Sequence[Table], oids: Sequence[int], user: str
    ) -> ScanOnlyPlan | None:
        """Return the plan of a statement; None if it needs DuckDB, or is wrong.

        Args:
            statement: the statement.
            tables: the tables that the user sees.
            oids: the types of parameters that the client asks for.
            user: the user.
        """
        tree = statement.tree
        if tree is None:
            return None
        key = (id(tree), tuple(oids), user)
        kept = self._plans.get(key)
        if kept is not None and kept.plan.is_of(tables):
            return kept.plan
        plan = make_plan(tree, tables, oids)
        if plan is not None and len(statement.text) <= _MAX_TEXT_LENGTH:
            self._plans.put(key, _KeptPlan(tree, plan))
        return plan


def make_plan(
    tree: exp.Expr, tables: Sequence[Table], declared_oids: Sequence[int]
) -> ScanOnlyPlan | None:
    """Return the plan of a query; None if it needs DuckDB, or is wrong."""
    if not isinstance(tree, exp.Select) or not _has_only(tree, _SELECT_PARTS):
        return None
    if any(not is_plain(node) for node in tree.walk()):
        return None
    tree = tree.copy()
    fold_identifiers(tree)
    from_ = tree.args.get("from_")
    reference = None
    if from_ is not None:
        reference = _reference(from_.this, tables)
        if reference is None:
            return None
    elif not _has_only(tree, {"expressions"}):
        return None
    outputs = _outputs(tree, reference)
    if outputs is None or not 0 < len(outputs) <= MAX_COLUMNS:
        return None
    names = output_names(tree)
    if names is None:  # a star
        names = [output for output in outputs if isinstance(output, str)]
    references = () if reference is None else (reference,)
    try:
        type_literals(tree, references)
    except SqlError:
        return None
    oids = infer_parameters(tree, references, declared_oids)
    return ScanOnlyPlan(tree, reference, outputs, names, oids)


def is_plain(node: exp.Expr, kinds: Set[type[exp.Expr]] = PLAIN_NODES) -> bool:
    """Return whether a node means the same for every user and session.

    Args:
        node: the node.
        kinds: the kinds of nodes of which all that have no names do so.
    """
    if type(node) not in kinds:
        return False
    match node:
        case exp.Column():
            return not node.args.get("db") and not (
                not node.table and node.name.lower() in _NO_COLUMNS
            )
        case exp.DataType():
            return node.this in _CAST_TYPES and _has_only(node, {"this", "nested"})
        case exp.Star():
            return _has_only(node, frozenset())
        case exp.Limit():
            return _has_only(node, {"expression"})
        case exp.Table():
            return _has_only(node, _TABLE_PARTS) and isinstance(node.this, exp.Identifier)
        case exp.TableAlias():
            return _has_only(node, {"this"})
        case _:
            return True


def _names_key(tree: exp.Select, table: Table) -> bool:
    """Return whether conditions give the values of all columns of a table's key."""
    where = tree.args.get("where")
    terms = [where.this] if where is not None else []
    named: set[str] = set()
    while terms:
        term = terms.pop()
        if isinstance(term, exp.Paren | exp.And):
            terms += [term.this, *([term.expression] if isinstance(term, exp.And) else [])]
        elif isinstance(term, exp.EQ):
            named.update(one.name for one in term.find_all(exp.Column))
    return bool(table.key) and named.issuperset(table.key)


def _has_only(node: exp.Expr, parts: frozenset[str] | set[str]) -> bool:
    return all(name in parts for name, value in node.args.items() if value)


def _reference(node: exp.Expr, tables: Sequence[Table]) -> TableReference | None:
    """Return the table of FROM; None if there is no such topic, view or queue."""
    if not isinstance(node, exp.Table):
        return None
    table = find_table(tables, node.db or None, node.name)
    if table is None or table.kind not in KINDS:
        return None
    relation = relation_of(table)
    if any(column.physical != column.name for column in relation.columns):
        return None
    return TableReference(node, relation, node.alias or node.name)


def _outputs(tree: exp.Select, reference: TableReference | None) -> list[str | _Constant] | None:
    """Return the columns and constants of a SELECT; None if there is anything else."""
    items = tree.expressions
    if reference is not None and len(items) == 1 and _is_star(items[0], reference):
        return [column.name for column in reference.relation.columns]
    outputs: list[str | _Constant] = []
    for item in items:
        value = item.this if isinstance(item, exp.Alias) else item
        output = (
            _column_name(value, reference) if isinstance(value, exp.Column) else _constant(value)
        )
        if output is None:
            return None
        outputs.append(output)
    return outputs


def _is_star(node: exp.Expr, reference: TableReference) -> bool:
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return node.table == reference.alias
    return isinstance(node, exp.Star)


def _column_name(node: exp.Column, reference: TableReference | None) -> str | None:
    if reference is None or node.table not in ("", reference.alias):
        return None
    if not isinstance(node.this, exp.Identifier) or node.name == reference.alias:
        return None  # the latter is a whole row
    column = reference.relation.column(node.name)
    return None if column is None else column.name


def _constant(node: exp.Expr) -> _Constant | None:
    """Return a constant with the type that DuckDB gives it; None if it is none."""
    match node:
        case exp.Literal() if node.is_string:
            return _Constant(node.name, SqlType.TEXT.duckdb_name, pa.string())
        case exp.Literal():
            return _integer(node, 1)
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _integer(node.this, -1)
        case exp.Boolean():
            return _Constant(bool(node.this), SqlType.BOOLEAN.duckdb_name, pa.bool_())
        case exp.Null():
            return _Constant(None, SqlType.TEXT.duckdb_name, pa.string())
        case _:
            return None


def _integer(node: exp.Literal, sign: int) -> _Constant | None:
    text = node.name
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    value = int(text)
    if value <= _INTEGER_MAX:
        return _Constant(sign * value, "INTEGER", pa.int32())
    if value <= _BIGINT_MAX:
        return _Constant(sign * value, "BIGINT", pa.int64())
    return None


def _one_array(data: pa.Table | None, name: str, start: int, rows: int) -> pa.Array:
    """Return rows of a column as one array."""
    assert data is not None  # noqa: S101 - it has the columns
    column = data.column(name).slice(start, rows)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def size_of_texts(data: pa.Table) -> int:
    """Return the size of rows in bytes, with dictionaries of texts as texts."""
    return sum(_size_of_texts(chunk) for column in data.columns for chunk in column.chunks)


def _size_of_texts(array: pa.Array) -> int:
    if not isinstance(array, pa.DictionaryArray):
        return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary).take(array.indices)
    return int(array.indices.nbytes) + int(pc.sum(lengths).as_py() or 0)


def _decoded(data: pa.Table) -> pa.Table:
    """Return rows with dictionaries of texts as texts."""
    for number, field in enumerate(data.schema):
        if pa.types.is_dictionary(field.type):
            texts = data.column(number).cast(field.type.value_type)
            data = data.set_column(number, field.name, texts)
    return data
