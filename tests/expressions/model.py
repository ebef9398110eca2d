"""What an expression means, in the fewest words: the model that back ends are compared with.

It evaluates the tree node by node, trying every pair of elements of arrays, with no short cut.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeAlias

from server.expressions import semantics
from server.expressions.numerals import numeral
from server.expressions.tree import (
    Affix,
    And,
    Arithmetic,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNan,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
)
from server.message_types.base import Value

_SIGNS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


Record: TypeAlias = Mapping[str, Value]


def supported(expr: Expr) -> bool:
    """Whether the model knows a tree's nodes."""
    return type(expr) in _MEANINGS and all(map(supported, expr.children()))


def meaning(expr: Expr, record: Record) -> Value:
    """The value of a tree for a record."""
    return _MEANINGS[type(expr)](
        expr, *(meaning(child, record) for child in expr.children()), record
    )


def _between(_: Expr, value: Value, low: Value, high: Value, __: Record) -> Value:
    return _and(compare(">=", value, low), compare("<=", value, high))


def _affix(node: Affix, value: Value, *items: Any) -> Value:
    pairs = product(_flat(value), items[:-1])
    return _or(*(_is_affix(node.operator, element, item) for element, item in pairs))


def _truths(values: tuple[Any, ...]) -> list[bool | None]:
    return [semantics.truth(value) for value in values[:-1]]


def _not(_: Expr, value: Value, __: Record) -> Value:
    truth = semantics.truth(value)
    return None if truth is None else not truth


_MEANINGS: dict[type[Expr], Callable[..., Value]] = {
    Literal: lambda node, _: node.value,
    Identifier: lambda node, record: record[node.path[0]],
    Negate: lambda _, value, __: semantics.negate(value),
    Arithmetic: lambda node, x, y, _: semantics.OPERATIONS[node.operator](x, y),
    Comparison: lambda node, x, y, _: compare(node.operator, x, y),
    Between: _between,
    In: lambda _, value, *items: _or(*(compare("=", value, item) for item in items[:-1])),
    Affix: _affix,
    IsNull: lambda _, value, __: _first(value) in (None, ""),
    IsNan: lambda _, value, __: semantics.is_nan(_first(value)),
    Not: _not,
    And: lambda _, *values: _and(*_truths(values)),
    Or: lambda _, *values: _or(*_truths(values)),
}
"""What a node means: called with the node, the values of its children, and the record."""


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """A comparison, of every pair of elements."""
    return _or(*(_pair(sign, x, y) for x, y in product(_flat(left), _flat(right))))


def _pair(sign: str, left: Any, right: Any) -> bool | None:
    if left in (None, "") or right in (None, ""):
        return None
    if isinstance(left, str) and isinstance(right, str):
        return bool(_SIGNS[sign](_bytes(left), _bytes(right)))
    one, other = _number(left), _number(right)
    if (left != left or right != right) or (one is None and other is None):
        return sign == "!="
    if one is None or other is None:
        return bool(_SIGNS[sign](one is None, other is None))
    if type(one) is not type(other):
        one, other = float(one), float(other)
    return bool(_SIGNS[sign](one, other))


def _number(value: Any) -> int | float | None:
    """A number; None for a text that is none."""
    return numeral(value) if isinstance(value, str) else value


def _flat(value: Value) -> list[Value]:
    if not isinstance(value, list):
        return [value]
    return [inner for element in value for inner in _flat(element) if element != []] or [None]


def _first(value: Value) -> Value:
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def _is_affix(sign: str, value: Value, item: Value) -> bool | None:
    whole, part = semantics.octets(value), semantics.octets(item)
    if whole is None or part is None:
        return None
    return whole.startswith(part) if sign == "BEGINS WITH" else whole.endswith(part)


def _and(*truths: bool | None) -> bool | None:
    return False if False in truths else None if None in truths else True


def _or(*truths: bool | None) -> bool | None:
    return True if True in truths else None if None in truths else False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
