"""The terms of SUBSCRIBE, and the queries that can be live.

    SUBSCRIBE [TO] topic [WITH (snapshot = true|false, progress = true|false)] [AS OF moment]
    SUBSCRIBE [TO] (SELECT expressions FROM topic [WHERE condition]) [WITH (...)] [AS OF moment]

AS OF may precede WITH.

The syntax is that of Materialize (its documentation, SUBSCRIBE). A live query is decided record by
record, so that each change of a record becomes rows to remove and rows to add: it has expressions
over columns of one topic, and a condition. Columns, and conditions that filters decide in the same
way as SQL (`pushdown`), need no query for each batch of changes; all others are evaluated by DuckDB
(`live_evaluation`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.names import find_position, function_name
from server.sql.query.rewrite import fold_identifiers
from server.sql.query.tables import ScanRequest, Table, TableKind, find_table
from server.sql.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
)

if TYPE_CHECKING:
    from server.sql.query.live_evaluation import LiveEvaluation
    from server.sql.query.names import TableReference
    from server.sql.query.pushdown import PlannedScan

_QUERY_HINT: Final = (
    "Subscribe to expressions over one topic: SUBSCRIBE (SELECT a, b + 1 FROM t WHERE a > 1)."
)
_ROW_HINT: Final = "Expressions of a live query depend on nothing but the row."

_LIVE_KINDS: Final = frozenset({TableKind.TOPIC, TableKind.VIEW, TableKind.CONFLATED})

_SELECT_PARTS: Final = frozenset({"expressions", "from_", "where"})
_TABLE_PARTS: Final = ("joins", "sample", "laterals", "pivots", "ordinality")
_TRUE: Final = frozenset({"true", "on", "1", "yes"})
_FALSE: Final = frozenset({"false", "off", "0", "no"})

_DURATION: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)\s*")
_UNITS_S: Final = {
    "": 1.0,
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


class TopicName(NamedTuple):
    """The name of a topic in a statement, after folding.

    Attributes:
        schema: the schema; empty if there is none.
        name: the name.
        position: its offset in the text, from 1.
    """

    schema: str
    name: str
    position: int

    def __str__(self) -> str:
        """Return the name as it is written, without quotation marks."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


class LiveTerms(NamedTuple):
    """The terms of a SUBSCRIBE.

    Attributes:
        topic: the topic of SUBSCRIBE TO; None if there is a query.
        has_snapshot: whether the present records come first.
        has_progress: whether rows tell how far the changes have been sent.
        version: the moment of the past at which it begins; None for now.
    """

    topic: TopicName | None
    has_snapshot: bool = True
    has_progress: bool = False
    version: exp.Version | None = None


class LiveColumn(NamedTuple):
    """A column of a live query: its name in the result, and the column of the topic."""

    name: str
    source: str


class LivePlan(NamedTuple):
    """A live query of a topic with records.

    Attributes:
        request: the topic's columns, and the filter.
        columns: the columns of the result; all of the request, if it is evaluated.
        evaluation: evaluates expressions and the rest of the condition; None if there are none.
    """

    request: ScanRequest
    columns: tuple[LiveColumn, ...]
    evaluation: LiveEvaluation | None = None


def make_terms(topic: TopicName | None, options: Mapping[str, str]) -> LiveTerms:
    """Return the terms of a SUBSCRIBE.

    Args:
        topic: the topic of SUBSCRIBE TO; None if there is a query.
        options: the options by their names in lower case.

    Raises:
        SqlError: an option is unknown or has no such value.
    """
    switches = {"snapshot": True, "progress": False}
    for name, value in options.items():
        if name not in switches:
            raise SqlError(
                INVALID_PARAMETER_VALUE,
                f'option "{name}" not recognized',
                hint="The options of SUBSCRIBE are snapshot and progress.",
            )
        if value.lower() not in _TRUE | _FALSE:
            raise SqlError(INVALID_PARAMETER_VALUE, f'option "{name}" is true or false')
        switches[name] = value.lower() in _TRUE
    return LiveTerms(topic, switches["snapshot"], switches["progress"])


def fetch_timeout_s(options: Mapping[str, str]) -> float | None:
    """Return the timeout of FETCH in seconds; None if it has none.

    Raises:
        SqlError: an option is unknown, or the timeout is no duration.
    """
    for name in options:
        if name != "timeout":
            raise SqlError(INVALID_PARAMETER_VALUE, f'option "{name}" not recognized')
    text = options.get("timeout")
    if text is None:
        return None
    found = _DURATION.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_S:
        raise SqlError(
            INVALID_PARAMETER_VALUE,
            f'invalid timeout: "{text}"',
            hint="Write a number with a unit, such as '500ms' or '2s'.",
        )
    return float(found[1]) * _UNITS_S[found[2]]


def check_live_query(tree: exp.Expr, position: int) -> None:
    """Check that a query has columns of one topic, and at most a condition.

    Args:
        tree: the query.
        position: its offset in the text, from 1.

    Raises:
        SqlError: it has more.
    """
    if not isinstance(tree, exp.Select):
        raise _refusal("a set operation or a list of values", tree, position)
    for name, value in tree.args.items():
        if value and name not in _SELECT_PARTS:
            part = value[0] if isinstance(value, list) else value
            named = _PART_NAMES.get(name, name.upper().strip("_"))
            raise _refusal(named, part, position)
    source = tree.args.get("from_")
    table = source.this if source is not None else None
    if isinstance(table, exp.Table) and table.args.get("version") is not None:
        hint = "Write SUBSCRIBE (SELECT ...) AS OF ...."
        raise _refusal("AS OF within it", source or tree, position, hint)
    if not _is_plain_table(table):
        raise _refusal("anything but one topic in FROM", source or tree, position)
    for node in (*tree.expressions, tree.args.get("where")):
        if node is not None:
            _check_row_wise(node, position)


def _check_row_wise(tree: exp.Expr, position: int) -> None:
    """Raise an error if an expression depends on more than a row, or makes several rows of it."""
    for kinds, what in _NOT_ROW_WISE:
        found = tree.find(*kinds)
        if found is not None:
            raise _refusal(what, found, position)
    for function in tree.find_all(exp.Func, exp.Anonymous):
        name = function_name(function)
        is_age_now = name == "age" and len(list(function.iter_expressions())) < _AGE_ARGUMENTS
        if name in _CHANGING_FUNCTIONS or is_age_now:
            what = "a function of more than its arguments"
            raise _refusal(what, function, position, _ROW_HINT)


_NOT_ROW_WISE: Final = (
    ((exp.Query,), "a subquery"),
    ((exp.Window,), "a window function"),
    ((exp.AggFunc,), "an aggregate"),
    (
        (exp.Unnest, exp.Explode, exp.UDTF, exp.GenerateSeries),
        "a function that returns several rows",
    ),
    (
        (exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentDatetime),
        "the current time",
    ),
    ((exp.Localtime, exp.Localtimestamp), "the current time"),
)
"""Parts of queries that are not decided by a row alone."""

_CHANGING_NAMES: Final = """
    ago clock_timestamp current_date current_localtime current_localtimestamp current_time
    current_timestamp error gen_random_uuid generate_subscripts get_current_time
    get_current_timestamp json_array_elements now pg_notify rand random regexp_split_to_table
    statement_timestamp timeofday today transaction_timestamp uuid uuidv4 uuidv7
"""
_CHANGING_FUNCTIONS: Final = frozenset(_CHANGING_NAMES.split())
"""Functions whose results differ from call to call, or that return several rows."""

_AGE_ARGUMENTS: Final = 2
"""Arguments of `age` without which it reads the current date."""


def _is_plain_table(node: object) -> bool:
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        return False
    alias = node.args.get("alias")
    has_columns = alias is not None and bool(alias.columns)
    return not has_columns and not any(node.args.get(name) for name in _TABLE_PARTS)


def plan_topic(tables: Sequence[Table], topic: TopicName) -> LivePlan | None:
    """Return the plan of SUBSCRIBE TO; None if no table has this name."""
    table = find_table(tables, topic.schema or None, topic.name)
    if table is None:
        return None
    _require_live(table, topic.position)
    names = tuple(column.name for column in table.columns)
    columns = tuple(LiveColumn(name, name) for name in names)
    return LivePlan(ScanRequest(table, names), columns)


def plan_query(
    original: exp.Expr, planned: exp.Expr, scans: Sequence[PlannedScan], position: int
) -> LivePlan | None:
    """Return the plan of a live query; None if DuckDB has to evaluate it.

    Args:
        original: the query as it was written.
        planned: the query for DuckDB, without the conditions that the scan decides.
        scans: the scans of its tables.
        position: its offset in the text, from 1.

    Raises:
        SqlError: it is no topic's, or a column does not exist.
    """
    scan = live_scan(scans, position)
    if planned.args.get("where") is not None or scan.residual:
        return None
    folded = original.copy()
    fold_identifiers(folded)
    if not all(_is_column(item) for item in folded.expressions):
        return None
    columns: list[LiveColumn] = []
    for item in folded.expressions:
        columns += _columns_of(item, scan.reference)
    needed = tuple(dict.fromkeys(column.source for column in columns))
    return LivePlan(ScanRequest(scan.request.table, needed, scan.request.filter), tuple(columns))


def plan_evaluation(table: Table, scan: PlannedScan, evaluation: LiveEvaluation) -> LivePlan:
    """Return the plan of a live query that DuckDB evaluates.

    Args:
        table: the topic.
        scan: the scan of the query; it may have a column that the topic does not have.
        evaluation: evaluates the query.
    """
    known = {column.name for column in table.columns}
    needed = tuple(name for name in scan.request.columns if name in known)
    columns = tuple(LiveColumn(name, name) for name in needed)
    return LivePlan(ScanRequest(table, needed, scan.request.filter), columns, evaluation)


def live_scan(scans: Sequence[PlannedScan], position: int) -> PlannedScan:
    """Return the scan of a live query.

    Raises:
        SqlError: it is not that of a topic.
    """
    if len(scans) != 1 or scans[0].reference.relation.table is None:
        raise SqlError(
            UNDEFINED_TABLE, "the query reads no topic", hint=_QUERY_HINT, position=position
        )
    (scan,) = scans
    _require_live(scan.request.table, position)
    return scan


def _is_column(item: exp.Expr) -> bool:
    return isinstance(item.this if isinstance(item, exp.Alias) else item, exp.Column | exp.Star)


def _require_live(table: Table, position: int) -> None:
    """Raise an error unless the rows of a table are the records of a topic."""
    if table.kind not in _LIVE_KINDS:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            f'{table.kind.value} "{table.name}" cannot be subscribed to',
            hint="SUBSCRIBE to a topic, a view or a conflated topic.",
            position=position,
        )


def _columns_of(item: exp.Expr, reference: TableReference) -> list[LiveColumn]:
    relation = reference.relation
    column = item.this if isinstance(item, exp.Alias) else item
    if isinstance(column, exp.Column) and column.table not in ("", reference.alias):
        raise SqlError(
            UNDEFINED_TABLE,
            f'missing FROM-clause entry for table "{column.table}"',
            position=find_position(column),
        )
    if item.is_star:
        return [LiveColumn(known.name, known.name) for known in relation.columns]
    known = relation.column(column.name)
    if known is None:
        raise SqlError(
            UNDEFINED_COLUMN,
            f'column "{column.name}" does not exist',
            position=find_position(column),
        )
    return [LiveColumn(str(item.alias) or column.name, known.name)]


def _refusal(what: str, node: exp.Expr, position: int, hint: str = _QUERY_HINT) -> SqlError:
    return SqlError(
        FEATURE_NOT_SUPPORTED,
        f"a live query cannot have {what}",
        hint=hint,
        position=find_position(node) or position,
    )


_PART_NAMES: Final = {
    "with_": "WITH",
    "joins": "a join",
    "laterals": "LATERAL",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "distinct": "DISTINCT",
    "windows": "WINDOW",
    "sample": "TABLESAMPLE",
}
