"""Filters that are nothing but tests of fields against literals, all of which have to hold.

Such a filter can be decided where a body is read, by the bytes of its values, for those values of
which the meaning leaves no doubt (server/message_types/bulk.py); which these are follows from
`semantics`. A negated test is another one: NULL, for which that would not hold, passes neither.
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
from server.message_types.bulk import PlainTest

_NEGATED: Final = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "IN": "NOT IN",
}


def plain_tests(expr: Expr) -> Sequence[PlainTest] | None:
    """The tests that a filter consists of; None if it consists of anything else."""
    found: list[PlainTest] = []
    for term in conjuncts(expr):
        tests = _tests(term)
        if not tests:
            return None
        found += tests
    return found


def _tests(term: Expr) -> list[PlainTest]:
    """The tests that a term stands for; none if it is no such term."""
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


def _test(field: Expr, operator: str, items: Sequence[Expr]) -> PlainTest | None:
    """A test, if it is of a field and against literals of one kind."""
    if not isinstance(field, Identifier) or field.reference != Reference(field.path):
        return None
    literals = [item.value for item in items if isinstance(item, Literal)]
    plain = [value for value in literals if value is not None and _is_plain(value)]
    if len(plain) < len(items) or not all(isinstance(step, str) for step in field.path):
        return None
    if len({isinstance(value, str) for value in plain}) != 1:
        return None
    return PlainTest(field.path, operator, plain)


def _is_plain(value: float | str) -> bool:
    if isinstance(value, str):
        return bool(value) and value.isascii()
    return abs(value) < EXACT_LIMIT
