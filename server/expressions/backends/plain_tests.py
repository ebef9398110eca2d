"""Detects filters that consist only of tests of fields against literals, joined by AND.

Such a filter can be decided while a body is read, by the bytes of its values, for values with an
unambiguous meaning (server/message_types/bulk.py); `semantics` determines these values. A negated
test becomes the opposite test: that would be wrong for NULL, but NULL passes neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.expressions.grammar import MIRRORED
from server.expressions.semantics import EXACT_LIMIT
from server.expressions.tree import (
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    Literal,
    Not,
    Reference,
    conjuncts,
)
from server.message_types.bulk import LiteralTest

_NEGATED: Final = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "IN": "NOT IN",
}


def plain_tests(expr: Expr) -> Sequence[LiteralTest] | None:
    """Return the tests of a filter; None if it has any other term."""
    literal_tests: list[LiteralTest] = []
    for term in conjuncts(expr):
        tests = _tests(term)
        if not tests:
            return None
        literal_tests += tests
    return literal_tests


def _tests(term: Expr) -> list[LiteralTest]:
    """Return the tests that a term is equivalent to; an empty list if it is no such term."""
    match term:
        case Comparison(operator, Literal() as left, Identifier() as right):
            tests = [_test(right, MIRRORED[operator], [left])]
        case Comparison(operator, left, right):
            tests = [_test(left, operator, [right])]
        case In(operand, items):
            tests = [_test(operand, "IN", items)]
        case Between(operand, low, high):
            tests = [_test(operand, ">=", [low]), _test(operand, "<=", [high])]
        case Not((Comparison() | In()) as negated):
            return [test._replace(operator=_NEGATED[test.operator]) for test in _tests(negated)]
        case _:
            return []
    return [test for test in tests if test is not None] if all(tests) else []


def _test(field: Expr, operator: str, items: Sequence[Expr]) -> LiteralTest | None:
    """Return a test of a field against literals of one kind; None for other operands."""
    if not isinstance(field, Identifier) or field.reference != Reference(field.path):
        return None
    literals = [item.value for item in items if isinstance(item, Literal)]
    plain = [value for value in literals if value is not None and _is_plain(value)]
    if len(plain) < len(items) or not all(isinstance(step, str) for step in field.path):
        return None
    if len({isinstance(value, str) for value in plain}) != 1:
        return None
    return LiteralTest(field.path, operator, plain)


def _is_plain(value: float | str) -> bool:
    if isinstance(value, str):
        return bool(value) and value.isascii()
    return abs(value) < EXACT_LIMIT
