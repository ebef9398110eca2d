"""Random queries in Spark's SQL, and a model of what they mean.

An expression has its text, and its value for a row of the model: NULL is None, numbers are compared
as Spark compares them (NaN is greater than everything, and equal to itself), texts by their bytes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from pyspark.sql import DataFrame

Row = Mapping[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_END: Final = 2**63
_INT_END: Final = 2**31


class Expr(NamedTuple):
    """An expression.

    Attributes:
        sql: its text.
        kind: long, double, text, moment, truth, decimal or nested.
        value: its value for a row.
    """

    sql: str
    kind: str
    value: Callable[[Row], Any]

    def output(self) -> str:
        """Its text where it is selected: PySpark has no zone for a TIMESTAMP."""
        return f"unix_micros({self.sql})" if self.kind == "moment" else self.sql


class Order(NamedTuple):
    """An order of rows, with the id behind it."""

    by: Expr
    is_descending: bool
    nulls_first: bool

    def sql(self, tie: str) -> str:
        """The text of ORDER BY."""
        direction = "DESC" if self.is_descending else "ASC"
        return f"{self.by.sql} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}, {tie}"


class Query(NamedTuple):
    """A query: its rows, or their groups.

    Attributes:
        where: the condition.
        outputs: the columns; behind a grouping, what is aggregated.
        order: the order, if any.
        limit: the largest number of rows; None for all.
        groups: what the rows are grouped by, `()` for one group; None for the rows.
    """

    where: Expr
    outputs: tuple[Expr, ...]
    order: Order | None
    limit: int | None
    groups: tuple[Expr, ...] | None

    def sql(self, table: str, tie: str, where: str | None = None) -> str:
        """The whole text.

        Args:
            table: what is queried.
            tie: the id, which makes an order complete.
            where: the condition instead of its own.
        """
        text = f"SELECT {', '.join(self._columns())} FROM {table} WHERE {where or self.where.sql}"
        if self.groups:
            text += f" GROUP BY {', '.join(group.sql for group in self.groups)}"
        if self.order is not None:
            text += f" ORDER BY {self.order.sql(tie)}"
        return text if self.limit is None else f"{text} LIMIT {self.limit}"

    def _columns(self) -> list[str]:
        if self.groups is None:
            return [f"{one.output()} AS c{number}" for number, one in enumerate(self.outputs)]
        columns = [f"{group.output()} AS g{number}" for number, group in enumerate(self.groups)]
        columns.append("count(*) AS rows")
        for number, one in enumerate(self.outputs):
            columns.append(f"count({one.sql}) AS n{number}")
            for name in ("min", "max"):
                output = one._replace(sql=f"{name}({one.sql})").output()
                columns.append(f"{output} AS {name}{number}")
        return columns

    def check(self, found: Sequence[tuple[Any, ...]], rows: Sequence[Row]) -> None:
        """Check what a query has found of some rows."""
        kept = [row for row in rows if self.where.value(row) is True]
        if self.groups is not None:
            assert _sorted(found) == _sorted(self._grouped(kept))
            return
        if self.order is not None:
            kept.sort(key=cmp_to_key(self._compare))
        meant = [tuple(_shown(one.value(row)) for one in self.outputs) for row in kept]
        shown = [tuple(map(_shown, row)) for row in found]
        if self.order is not None:
            assert shown == meant[: self.limit], f"{shown} != {meant[: self.limit]}"
        elif self.limit is None:
            assert sorted(shown) == sorted(meant), f"{sorted(shown)} != {sorted(meant)}"
        else:
            assert len(shown) == min(self.limit, len(meant))
            for row in shown:
                meant.remove(row)

    def _grouped(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[Row]] = {} if self.groups else {(): []}
        for row in rows:
            key = tuple(_ordered(group.value(row)) for group in self.groups or ())
            groups.setdefault(key, []).append(row)
        found = []
        for members in groups.values():
            values: list[Any] = [group.value(members[0]) for group in self.groups or ()]
            values.append(len(members))
            for one in self.outputs:
                some = [value for row in members if (value := one.value(row)) is not None]
                some.sort(key=_ordered)
                values += [len(some), some[0], some[-1]] if some else [0, None, None]
            found.append(tuple(values))
        return found

    def _compare(self, row: Row, other: Row) -> int:
        assert self.order is not None
        one, two = self.order.by.value(row), self.order.by.value(other)
        if one is None or two is None:
            found = (one is None) - (two is None)
            found = -found if self.order.nulls_first else found
        else:
            found = _compared(one, two)
            found = -found if self.order.is_descending else found
        return found or _compared(_tie(row), _tie(other))


def _tie(row: Row) -> int:
    return -1 if row["id"] is None else int(row["id"])


def _ordered(value: Any) -> Any:
    """A value by which values of one kind have the order of Spark."""
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
        case str():
            return value.encode()
    return value


def _compared(one: Any, two: Any) -> int:
    if isinstance(one, float) or isinstance(two, float):
        one, two = float(one), float(two)
    one, two = _ordered(one), _ordered(two)
    return int(one > two) - int(one < two)


def _shown(value: Any) -> str:
    """A value to compare; times are microseconds, as they are selected."""
    match value:
        case datetime():
            return str((value - _EPOCH) // timedelta(microseconds=1))
        case Decimal():
            return str(value.normalize() + 0)
        case dict():
            return str({name: _shown(one) for name, one in value.items()})
        case list():
            return str(list(map(_shown, value)))
        case float():
            return repr(value)
    if hasattr(value, "asDict"):
        return _shown(value.asDict())
    return repr(value)


def _sorted(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Rows of aggregates, in which zero has no sign."""
    plain = [[one + 0.0 if isinstance(one, float) else one for one in row] for row in rows]
    return sorted(tuple(map(_shown, row)) for row in plain)


def literal(kind: str, value: Any) -> Expr:
    """A constant."""
    match kind, value:
        case "long", int():
            sql = f"{value}" if -_INT_END <= value < _INT_END else f"{value}L"
        case "double", float() if math.isfinite(value):
            sql = f"{value!r}D"
        case "double", float():
            sql = f"double('{value}')"
        case "text", str():
            sql = quoted(value)
        case "moment", datetime():
            sql = f"TIMESTAMP '{value.isoformat()}'"
        case "decimal", Decimal():
            sql = f"{value:f}BD"
        case "truth", bool():
            sql = str(value).lower()
        case _:
            raise AssertionError((kind, value))
    return Expr(sql, kind, lambda _: value)


def quoted(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SIGNS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(sign: str, one: Expr, two: Expr) -> Expr:
    """A comparison, which is NULL where one side is."""

    def value(row: Row) -> bool | None:
        left, right = one.value(row), two.value(row)
        if left is None or right is None:
            return None
        return _SIGNS[sign](_compared(left, right), 0)

    return Expr(f"({one.sql} {sign} {two.sql})", "truth", value)


def same(one: Expr, two: Expr) -> Expr:
    """A comparison for which NULL is NULL."""

    def value(row: Row) -> bool:
        left, right = one.value(row), two.value(row)
        if left is None or right is None:
            return left is right
        return _compared(left, right) == 0

    return Expr(f"({one.sql} <=> {two.sql})", "truth", value)


def membership(one: Expr, members: Sequence[Expr], *, with_null: bool) -> Expr:
    """IN, with or without NULL among the members."""
    texts = [member.sql for member in members] + ["NULL"] * with_null

    def value(row: Row) -> bool | None:
        if (found := one.value(row)) is None:
            return None
        if any(_compared(found, member.value(row)) == 0 for member in members):
            return True
        return None if with_null else False

    return Expr(f"({one.sql} IN ({', '.join(texts)}))", "truth", value)


def like(one: Expr, pattern: Sequence[str]) -> Expr:
    """LIKE, with a pattern of texts and of the signs `%` and `_`."""
    parts = {"%": ".*", "_": "."}
    regex = re.compile("".join(parts.get(part) or re.escape(part) for part in pattern), re.DOTALL)

    def value(row: Row) -> bool | None:
        found = one.value(row)
        return None if found is None else regex.fullmatch(found) is not None

    return Expr(f"({one.sql} LIKE {quoted(''.join(pattern))})", "truth", value)


def is_null(one: Expr, *, negated: bool) -> Expr:
    """IS NULL, or IS NOT NULL."""
    text = f"({one.sql} IS {'NOT ' if negated else ''}NULL)"
    return Expr(text, "truth", lambda row: (one.value(row) is None) != negated)


def negation(one: Expr) -> Expr:
    """NOT."""

    def value(row: Row) -> bool | None:
        found = one.value(row)
        return None if found is None else not found

    return Expr(f"(NOT {one.sql})", "truth", value)


def junction(sign: str, one: Expr, two: Expr) -> Expr:
    """AND, or OR."""
    deciding = sign == "OR"

    def value(row: Row) -> bool | None:
        found = one.value(row), two.value(row)
        return deciding if deciding in found else None if None in found else not deciding

    return Expr(f"({one.sql} {sign} {two.sql})", "truth", value)


def coalesce(one: Expr, two: Expr) -> Expr:
    """The first that is not NULL."""

    def value(row: Row) -> Any:
        found = one.value(row)
        return two.value(row) if found is None else found

    return Expr(f"coalesce({one.sql}, {two.sql})", one.kind, value)


def arithmetic(sign: str, one: Expr, two: Expr) -> Expr:
    """A sum or product of doubles; of integers, NULL beyond 64 bits."""
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    names = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}

    def value(row: Row) -> Any:
        left, right = one.value(row), two.value(row)
        if left is None or right is None:
            return None
        found = functions[sign](left, right)
        is_whole = one.kind == "long"
        return None if is_whole and not -_LONG_END <= found < _LONG_END else found

    if one.kind == "long":
        wide = [f"CAST({side.sql} AS BIGINT)" for side in (one, two)]
        return Expr(f"{names[sign]}({', '.join(wide)})", one.kind, value)
    return Expr(f"({one.sql} {sign} {two.sql})", one.kind, value)


def _of_kind(columns: Sequence[Expr], kind: str) -> list[Expr]:
    return [column for column in columns if column.kind == kind]


@st.composite
def operands(
    draw: st.DrawFn, columns: Sequence[Expr], literals: Mapping[str, st.SearchStrategy[Any]]
) -> Expr:
    """A column, or something that is computed from one."""
    column: Expr = draw(st.sampled_from([one for one in columns if one.kind in literals]))
    constant = literals[column.kind].map(lambda value: literal(column.kind, value))
    form = draw(st.sampled_from(["column", "column", "coalesce", "arithmetic"]))
    if form == "coalesce":
        return coalesce(column, draw(constant))
    if form == "arithmetic" and column.kind in ("long", "double"):
        return arithmetic(draw(st.sampled_from("+-*")), column, draw(constant))
    return column


@st.composite
def simple_conditions(
    draw: st.DrawFn, columns: Sequence[Expr], literals: Mapping[str, st.SearchStrategy[Any]]
) -> Expr:
    """A condition without AND, OR and NOT."""
    one = draw(operands(columns, literals))
    constants = literals[one.kind].map(lambda value: literal(one.kind, value))
    others = constants | st.sampled_from(_of_kind(columns, one.kind))
    if one.kind in ("long", "double"):
        other_kind = "double" if one.kind == "long" else "long"
        others |= st.sampled_from(_of_kind(columns, other_kind))
        others |= literals[other_kind].map(lambda value: literal(other_kind, value))
    forms = ["comparison", "comparison", "same", "in", "null"]
    forms += ["like", "like"] if one.kind == "text" else []
    match draw(st.sampled_from(forms)):
        case "comparison":
            return comparison(draw(st.sampled_from(list(_SIGNS))), one, draw(others))
        case "same":
            return same(one, draw(others))
        case "in":
            members = draw(st.lists(constants, min_size=1, max_size=4))
            return membership(one, members, with_null=draw(st.booleans()))
        case "like":
            part = st.sampled_from(["%", "%", "_", "a", "b", "1", "é", "ab"])
            return like(one, draw(st.lists(part, max_size=4)))
    return is_null(one, negated=draw(st.booleans()))


def conditions(
    columns: Sequence[Expr], literals: Mapping[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Expr]:
    """Conditions of several terms."""
    return st.recursive(
        simple_conditions(columns, literals),
        lambda inner: (
            inner.map(negation) | st.builds(junction, st.sampled_from(["AND", "OR"]), inner, inner)
        ),
        max_leaves=4,
    )


@st.composite
def queries(
    draw: st.DrawFn, columns: Sequence[Expr], literals: Mapping[str, st.SearchStrategy[Any]]
) -> Query:
    """Queries of rows, and of their groups."""
    where = draw(conditions(columns, literals))
    one = operands(columns, literals)
    if draw(st.booleans()):
        nested = st.sampled_from(
            [column for column in columns if column.kind == "nested"] or [columns[0]]
        )
        outputs = draw(st.lists(one | nested, min_size=1, max_size=4))
        order = draw(st.none() | st.builds(Order, one, st.booleans(), st.booleans()))
        limit = draw(st.none() | st.integers(1, 9))
        return Query(where, tuple(outputs), order, limit, None)
    groups = draw(st.lists(one, max_size=2))
    outputs = draw(st.lists(one, max_size=3))
    return Query(where, tuple(outputs), None, None, tuple(groups))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame."""
    return [tuple(row) for row in frame.collect()]
