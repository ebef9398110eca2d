"""Type inference for values of untyped message types, such as fix, nvfix and xml.

There all values are texts, and a text that is a number is meant as one. If a text is compared with
a number, or a number is needed, this makes no difference, since a text that is a number counts as
one anyway. It matters if two values from messages are compared: `/14 < /38` compares 9 and 10 as
numbers, and `MAX(/44)` is the greatest price. A literal text requests texts: `/55 = '0700'`.

So in an expression over such messages, a field is marked if it is compared with a value that may be
a text as well, and is no literal.

Source: AMPS User Guide, AMPS Data Types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.expressions.rewrite import rewrite
from server.expressions.tree import (
    Aggregate,
    Between,
    Call,
    Comparison,
    Expr,
    Identifier,
    In,
    InferredField,
    Literal,
    Reference,
)

if TYPE_CHECKING:
    from server.message_types.base import MessageType

_COMPARING_FUNCTIONS: Final = frozenset(
    {"MIN", "MAX", "LEAST", "GREATEST", "ARRAY_MIN", "ARRAY_MAX"}
)
"""Functions that compare their arguments."""


def with_inferred_types(expr: Expr, message_type: MessageType) -> Expr:
    """Return an expression over messages of one type, with fields of inferred types marked."""
    return expr if message_type.capabilities.typed else with_inferred(expr, lambda _: True)


def with_inferred(expr: Expr, is_untyped: Callable[[Reference], bool]) -> Expr:
    """Return an expression with fields of inferred types marked.

    Args:
        expr: the expression.
        is_untyped: returns whether the value of a reference is always a text.
    """

    def marked(node: Expr) -> Expr:
        if isinstance(node, Identifier):
            return InferredField(node) if is_untyped(node.reference) else node
        return rewrite(node, change)

    def change(node: Expr) -> Expr:
        match node:
            case Comparison(operator, left, right) if not _any_literal(left, right):
                return Comparison(operator, marked(left), marked(right), position=node.position)
            case Between(operand, low, high) if not _any_literal(low, high):
                return Between(marked(operand), marked(low), marked(high), position=node.position)
            case In(operand, items) if not _any_literal(operand, *items):
                return In(marked(operand), tuple(map(marked, items)), position=node.position)
            case Call(name, arguments) if name in _COMPARING_FUNCTIONS:
                return Call(name, tuple(map(marked, arguments)), position=node.position)
            case Aggregate(name, arguments) if name in _COMPARING_FUNCTIONS:
                return Aggregate(name, tuple(map(marked, arguments)), position=node.position)
        return node

    return rewrite(expr, change)


def _any_literal(*operands: Expr) -> bool:
    return any(isinstance(operand, Literal) for operand in operands)
