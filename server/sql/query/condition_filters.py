"""Filters for conditions of SQL: a condition on one table as a filter of the expression language.

Filters of the expression language and conditions of SQL differ in these ways, for the same record:

    the empty text     NULL in filters; a text in SQL, which is less than all others
    NaN                in filters, neither less nor greater than anything; in SQL the greatest
    text and number    in filters, compared as numbers if the text is one; in SQL an error, or a
                       conversion of the column
    large numbers      an integer and a double compare as doubles in filters; exactly or as decimals
                       in SQL

So a condition is pushed down only in a form that is true for all rows for which the condition is
true. If it is true for no others, it is *exact*, and DuckDB need not test it again; the column is
not even scanned, if nothing else reads it. If it may be true for other rows, DuckDB tests the
condition as well.

Negations are moved inwards first: `NOT (a > 1)` is `a <= 1` in SQL, NULL or not. Then only tests of
single columns are left, joined by AND and OR, which keep exactness. Of a conjunction, the parts
that can be translated are used; a disjunction needs all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from sqlglot import exp

from server.expressions import ExpressionError, parse, to_text
from server.expressions import tree as amps
from server.sql.query.select_scope import SelectScope
from server.sql.query.tables import Column, SqlType

_MAX_FILTER_NODES: Final = 2_000
_MAX_FILTER_DEPTH: Final = 60
_MAX_FILTER_LITERALS: Final = 10_000
_MAX_FILTER_CHARACTERS: Final = 500_000
_MAX_EXACT: Final = 2**53 - 1
"""The magnitude up to which integers are doubles, exactly."""

_MAX_DIGITS: Final = 15
"""Decimal digits that a double keeps, so that decimals and doubles round to the same number."""


class ConditionFilter(NamedTuple):
    """A condition as a filter.

    Attributes:
        filter: the filter.
        is_exact: true for exactly the same rows; if not, for more.
        texts: a column, and the texts of which it has to be one in the rows of the condition; None
            if an inexact one has to be tested by DuckDB.
    """

    filter: amps.Expr
    is_exact: bool
    texts: tuple[str, tuple[str, ...]] | None = None


_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class ConditionTranslator:
    """Translates conditions on one table."""

    def __init__(self, scope: SelectScope, parameters: Mapping[int, object]) -> None:
        self._scope = scope
        self._parameters = parameters

    def translate(self, node: exp.Expr, *, is_negated: bool) -> ConditionFilter | None:
        """Return a condition, or its negation, as a filter; None if there is none."""
        if node.args.get("negate"):  # NOT LIKE, IS NOT
            is_negated = not is_negated
        match node:
            case exp.Paren():
                return self.translate(node.this, is_negated=is_negated)
            case exp.Not():
                return self.translate(node.this, is_negated=not is_negated)
            case exp.And() | exp.Or():
                return self._connector(node, is_negated)
            case exp.Between():
                return self._between(node, is_negated)
            case exp.In():
                return self._in(node, is_negated)
            case exp.Is():
                return self._is(node, is_negated)
            case exp.Like():
                return self._like(node, is_negated)
            case exp.StartsWith():
                return self._affix(node, is_negated)
            case exp.Column():
                return _truth(self._scope.column(node), value=not is_negated)
            case _ if type(node) in _COMPARISONS:
                return self._comparison(node, is_negated)
            case _:
                return None

    def _connector(self, node: exp.Connector, is_negated: bool) -> ConditionFilter | None:
        operands = [
            self.translate(operand, is_negated=is_negated)
            for operand in _operands(node, type(node))
        ]
        found = [operand for operand in operands if operand is not None]
        is_conjunction = isinstance(node, exp.And) != is_negated
        is_exact = len(found) == len(operands) and all(item.is_exact for item in found)
        if not found or (not is_conjunction and len(found) != len(operands)):
            return None
        join = all_of if is_conjunction else _any_of
        return ConditionFilter(join(item.filter for item in found), is_exact)

    def _comparison(self, node: exp.Expr, is_negated: bool) -> ConditionFilter | None:
        sign = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        members = self._members(right)
        if members is not None:
            kind = right if isinstance(right, exp.Any) else None
            if kind is not None and sign == "=":
                return self._membership(self._scope.column(left), members, is_negated)
            if kind is None and sign == "!=":
                return self._membership(self._scope.column(left), members, not is_negated)
            return None
        column = self._scope.column(left)
        value = self.constant(right)
        if column is None:
            column, value = self._scope.column(right), self.constant(left)
            sign = _FLIPPED[sign]
        if column is None or value is _NOT_CONSTANT or value is None:
            return None
        return _compare(column, _NEGATED[sign] if is_negated else sign, value)

    def _members(self, node: exp.Expr) -> list[object] | None:
        """Return the elements of `ANY (array)` and `ALL (array)`."""
        if isinstance(node, exp.Any):
            operand = node.this
        elif isinstance(node, exp.Anonymous) and node.name.lower() == "all":
            operand = node.expressions[0] if len(node.expressions) == 1 else None
        else:
            return None
        while isinstance(operand, exp.Paren | exp.Cast):
            operand = operand.this
        if isinstance(operand, exp.Parameter):
            values = self._parameters.get(int(operand.this.name))
            return list(values) if isinstance(values, list | tuple) else [_NOT_CONSTANT]
        if isinstance(operand, exp.Array):
            return [self.constant(item) for item in operand.expressions]
        return [_NOT_CONSTANT]

    def _between(self, node: exp.Between, is_negated: bool) -> ConditionFilter | None:
        column = self._scope.column(node.this)
        low, high = self.constant(node.args["low"]), self.constant(node.args["high"])
        if column is None or node.args.get("symmetric") or None in (low, high):
            return None
        if low is _NOT_CONSTANT or high is _NOT_CONSTANT:
            return None
        first = _compare(column, "<" if is_negated else ">=", low)
        second = _compare(column, ">" if is_negated else "<=", high)
        if first is None or second is None:
            bound = first or second
            return (
                None
                if is_negated or bound is None
                else ConditionFilter(bound.filter, is_exact=False)
            )
        join = _any_of if is_negated else all_of
        return ConditionFilter(
            join((first.filter, second.filter)), first.is_exact and second.is_exact
        )

    def _in(self, node: exp.In, is_negated: bool) -> ConditionFilter | None:
        if node.args.get("query") or node.args.get("unnest") or not node.expressions:
            return None
        values = [self.constant(item) for item in node.expressions]
        return self._membership(self._scope.column(node.this), values, is_negated)

    def _membership(
        self, column: Column | None, values: list[object], is_negated: bool
    ) -> ConditionFilter | None:
        path = _path(column)
        if column is None or path is None or len(values) > _MAX_FILTER_LITERALS:
            return None
        present = [value for value in values if value is not None]
        if any(value is _NOT_CONSTANT for value in values) or not present:
            return None
        if is_negated and len(present) != len(values):
            return None
        literals = [_literal(column, value) for value in present]
        if any(literal is None for literal in literals):
            return None
        texts = tuple(
            literal for literal in literals if literal is not None and literal.value != ""
        )
        has_empty = len(texts) != len(literals)
        if not texts:
            return _compare(column, "!=" if is_negated else "=", "")
        test: amps.Expr = amps.In(path, texts)
        if column.type is not SqlType.TEXT:
            return ConditionFilter(amps.Not(test) if is_negated else test, is_exact=True)
        if is_negated or any(_is_text_of_other_value(str(one.value)) for one in texts):
            return None
        found = _any_of((test, amps.IsNull(path))) if has_empty else test
        demanded = tuple(str(literal.value) for literal in literals if literal is not None)
        return ConditionFilter(found, is_exact=False, texts=(column.name, demanded))

    def _is(self, node: exp.Is, is_negated: bool) -> ConditionFilter | None:
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None:
            return None
        if isinstance(node.expression, exp.Null):
            if is_negated:
                is_exact = column.type in _NEVER_EMPTY
                return ConditionFilter(amps.Not(amps.IsNull(path)), True) if is_exact else None
            return ConditionFilter(amps.IsNull(path), column.type in _NEVER_EMPTY)
        if isinstance(node.expression, exp.Boolean):
            value = bool(node.expression.this)
            if not is_negated:
                return _truth(column, value=value)
            opposite = _truth(column, value=not value)
            if opposite is None:
                return None
            return ConditionFilter(_any_of((opposite.filter, amps.IsNull(path))), opposite.is_exact)
        return None

    def _like(self, node: exp.Like, is_negated: bool) -> ConditionFilter | None:
        if isinstance(node.parent, exp.Escape):
            return None
        pattern = self.constant(node.expression)
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None or column.type is not SqlType.TEXT:
            return None
        if not isinstance(pattern, str) or re.search(r"[\\_]", pattern):
            return None
        core = pattern.removesuffix("%")
        literal = _literal(column, core)
        if "%" in core or not core or literal is None or _is_text_of_other_value(core):
            return None
        test: amps.Expr = amps.Affix("BEGINS WITH", path, (literal,))
        if core == pattern:
            test = amps.Comparison("=", path, literal)
        return _text_test(test, is_negated)

    def _affix(self, node: exp.StartsWith, is_negated: bool) -> ConditionFilter | None:
        prefix = self.constant(node.expression)
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None or column.type is not SqlType.TEXT:
            return None
        literal = _literal(column, prefix) if isinstance(prefix, str) and prefix else None
        if literal is None or _is_text_of_other_value(str(prefix)):
            return None
        return _text_test(amps.Affix("BEGINS WITH", path, (literal,)), is_negated)

    def constant(self, node: exp.Expr) -> object:
        """Return the value of a constant or a parameter; `_NOT_CONSTANT` for anything else."""
        match node:
            case exp.Paren():
                return self.constant(node.this)
            case exp.Literal():
                return _Unknown(node.name) if node.is_string else _number(node.name)
            case exp.Neg():
                value = self.constant(node.this)
                is_number = isinstance(value, int | float | Decimal)
                return -value if is_number else _NOT_CONSTANT  # type: ignore[operator]  # a number
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Parameter():
                return self._parameters.get(int(node.this.name))
            case exp.Cast():
                return _converted(self.constant(node.this), node.to.sql(dialect="duckdb"))
            case _:
                return _NOT_CONSTANT


class _Unknown(str):
    """A quoted literal without a type, which takes the type of the column it is compared with."""

    __slots__ = ()


_NOT_CONSTANT: Final = object()

_NEVER_EMPTY: Final = frozenset({SqlType.BIGINT, SqlType.DOUBLE, SqlType.BOOLEAN})
"""Types of columns none of whose values is NULL in filters alone."""


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    pending, found = [node], []
    while pending:
        item = pending.pop()
        if isinstance(item, exp.Paren) and isinstance(item.this, kind):
            pending.append(item.this)
        elif isinstance(item, kind):
            pending.extend((item.expression, item.this))
        else:
            found.append(item)
    return found


def _compare(column: Column, sign: str, value: object) -> ConditionFilter | None:
    """Return `column sign value` as a filter."""
    path = _path(column)
    if path is None:
        return None
    if column.type is SqlType.BOOLEAN:
        if not isinstance(value, bool) or sign not in ("=", "!="):
            return None
        return _truth(column, value=value == (sign == "="))
    literal = _literal(column, value)
    if literal is None:
        return None
    test = amps.Comparison(sign, path, literal)
    if column.type is SqlType.BIGINT:
        if isinstance(literal.value, float) and sign in ("=", "!="):
            return None  # decided without the record
        return ConditionFilter(test, is_exact=True)
    if column.type is SqlType.DOUBLE:
        if sign in (">", ">="):  # NaN is the greatest in SQL
            return ConditionFilter(_any_of((test, amps.IsNan(path))), is_exact=True)
        return ConditionFilter(test, is_exact=True)
    return _compare_text(column, path, sign, literal)


def _compare_text(
    column: Column, path: amps.Expr, sign: str, literal: amps.Literal
) -> ConditionFilter | None:
    """Return the comparison of a column of texts with a text as a filter.

    Such a column has numbers, Booleans, arrays and objects as texts, which filters do not compare
    as texts. So only `=` finds all rows, and more: a numeral finds all numbers and texts of its
    value, and any text an array that has it.
    """
    if literal.value == "":
        return _compare_with_empty(path, sign)
    if sign != "=" or _is_text_of_other_value(str(literal.value)):
        return None
    test = amps.Comparison(sign, path, literal)
    return ConditionFilter(test, is_exact=False, texts=(column.name, (str(literal.value),)))


def _is_text_of_other_value(text: str) -> bool:
    """Return whether a text may begin that of a Boolean, an array or an object."""
    return text.startswith(("[", "{")) or any(one.startswith(text) for one in ("true", "false"))


def _compare_with_empty(path: amps.Expr, sign: str) -> ConditionFilter | None:
    if sign in ("!=", ">"):
        return ConditionFilter(amps.Not(amps.IsNull(path)), is_exact=True)
    if sign in ("=", "<="):
        return ConditionFilter(amps.IsNull(path), is_exact=False)
    return None


def _truth(column: Column | None, *, value: bool) -> ConditionFilter | None:
    path = _path(column)
    if column is None or path is None or column.type is not SqlType.BOOLEAN:
        return None
    return ConditionFilter(amps.Comparison("=", path, amps.Literal(int(value))), is_exact=True)


def _text_test(test: amps.Expr, is_negated: bool) -> ConditionFilter | None:
    """Return a test of a text that the empty text does not pass."""
    return None if is_negated else ConditionFilter(test, is_exact=False)


def _literal(column: Column, value: object) -> amps.Literal | None:
    """Return a constant as a literal that compares with the column's values as in SQL."""
    if column.type is SqlType.TEXT:
        if not isinstance(value, str) or not _is_plain_text(value):
            return None
        return amps.Literal(str(value))
    if isinstance(value, bool):
        return None
    if isinstance(value, _Unknown):
        value = _number(value.strip())
    if column.type is SqlType.BIGINT:
        return _integer_literal(value)
    if column.type is SqlType.DOUBLE:
        return _double_literal(value)
    return None


def _is_plain_text(value: str) -> bool:
    """Return whether a text is in a record exactly if it is in the column.

    Bodies with bytes that are no UTF-8 have U+FFFD in columns.
    """
    if "\ufffd" in value or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _integer_literal(value: object) -> amps.Literal | None:
    if isinstance(value, int):
        return amps.Literal(value) if -(2**63) < value < 2**63 else None
    if isinstance(value, float):
        value = Decimal(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < _MAX_EXACT:
        return amps.Literal(int(value)) if value == int(value) else _double_literal(value)
    return None


def _double_literal(value: object) -> amps.Literal | None:
    if isinstance(value, int):
        return amps.Literal(value) if abs(value) <= _MAX_EXACT else None
    if isinstance(value, Decimal):
        if not value.is_finite() or len(value.as_tuple().digits) > _MAX_DIGITS:
            return None
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    if value and not 1e-15 < abs(value) < 1e15:
        return None
    return amps.Literal(value)


def _number(text: str) -> object:
    """Return the value of a numeric literal as PostgreSQL types it."""
    if re.fullmatch(r"[+-]?\d{1,30}", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d{1,30}\.\d{0,30}|\.\d{1,30})", text):
        return Decimal(text)
    return _NOT_CONSTANT


def _converted(value: object, duckdb: str) -> object:
    """Return a constant after a cast; `_NOT_CONSTANT` if the cast might change it otherwise."""
    if value is None or value is _NOT_CONSTANT:
        return value
    kind = duckdb.upper()
    if kind in ("VARCHAR", "TEXT"):
        return str(value) if isinstance(value, str) else _NOT_CONSTANT
    if isinstance(value, _Unknown):
        value = _number(value.strip())
    if kind in _INTEGER_BITS:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        bits = _INTEGER_BITS[kind]
        fits = is_integer and -(2 ** (bits - 1)) <= int(str(value)) < 2 ** (bits - 1)
        return value if fits else _NOT_CONSTANT
    if kind in ("DOUBLE", "FLOAT8"):
        if isinstance(value, float):
            return value
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return float(value) if -_MAX_EXACT <= value <= _MAX_EXACT else _NOT_CONSTANT
        return _NOT_CONSTANT
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else _NOT_CONSTANT
    return _NOT_CONSTANT


_INTEGER_BITS: Final = {"BIGINT": 64, "INT": 32, "INTEGER": 32, "SMALLINT": 16}


@lru_cache(maxsize=10_000)
def _parsed_path(path: str) -> amps.Expr | None:
    try:
        return parse(path)
    except ExpressionError:
        return None


def _path(column: Column | None) -> amps.Expr | None:
    return None if column is None or column.path is None else _parsed_path(column.path)


def all_of(terms: Iterable[amps.Expr]) -> amps.Expr:
    """Return the conjunction of terms, at least one."""
    flat = _flattened(terms, amps.And)
    return flat[0] if len(flat) == 1 else amps.And(flat)


def _any_of(terms: Iterable[amps.Expr]) -> amps.Expr:
    flat = _flattened(terms, amps.Or)
    return flat[0] if len(flat) == 1 else amps.Or(flat)


def _flattened(
    terms: Iterable[amps.Expr], kind: type[amps.And] | type[amps.Or]
) -> tuple[amps.Expr, ...]:
    flat: list[amps.Expr] = []
    for term in terms:
        flat.extend(term.operands if isinstance(term, kind) else (term,))
    return tuple(dict.fromkeys(flat))


def is_bounded(filter_: amps.Expr, others: Iterable[amps.Expr]) -> bool:
    """Return whether a filter can be parsed and applied, with others for the same table."""
    if amps.height(filter_) > _MAX_FILTER_DEPTH:
        return False
    nodes = literals = 0
    for node in amps.walk(filter_):
        if isinstance(node, amps.Literal):
            literals += 1
        else:
            nodes += 1
    if nodes > _MAX_FILTER_NODES or literals > _MAX_FILTER_LITERALS:
        return False
    return sum(len(to_text(one)) for one in (*others, filter_)) <= _MAX_FILTER_CHARACTERS
