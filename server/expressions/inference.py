"""Types of values that do not say what they are, as in fix, nvfix and xml.

There, all values are texts, and one that is a number is meant as one. Where a text meets a number,
or a number is needed, that makes no difference, for a text that is a number counts as one anyway.
It does where two values meet that come from messages: `/14 < /38` compares 9 and 10 as numbers, and
`MAX(/44)` is the greatest price. A literal text says that texts are meant: `/55 = '0700'`.

So of an expression over such messages, those fields are marked that meet a value which may be a
text as well, and is no literal.

Source: AMPS User Guide, AMPS Data Types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.expressions.rewriting import rewrite
from server.expressions.tree import (
    Aggregate,
    Between,
    Call,
    Comparison,
    Expr,
    Identifier,
    In,
    Inferred,
    Literal,
    Reference,
)

if TYPE_CHECKING:
    from server.message_types.base import MessageType

_CHOOSING: Final = frozenset({"MIN", "MAX", "LEAST", "GREATEST", "ARRAY_MIN", "ARRAY_MAX"})
"""Functions that compare their arguments."""


def as_read(expr: Expr, message_type: MessageType) -> Expr:
    """An expression over messages of one type, with the fields marked whose types are inferred."""
    return expr if message_type.capabilities.typed else with_inferred(expr, lambda _: True)


def with_inferred(expr: Expr, is_untyped: Callable[[Reference], bool]) -> Expr:
    """An expression with the fields marked whose types are inferred.

    Args:
        expr: the expression.
        is_untyped: whether what a reference reads comes as a text, whatever it is.
    """

    def marked(node: Expr) -> Expr:
        if isinstance(node, Identifier):
            return Inferred(node) if is_untyped(node.reference) else node
        return rewrite(node, change)

    def change(node: Expr) -> Expr:
        match node:
            case Comparison(operator, left, right) if not _any_literal(left, right):
                return Comparison(operator, marked(left), marked(right), position=node.position)
            case Between(operand, low, high) if not _any_literal(low, high):
                return Between(marked(operand), marked(low), marked(high), position=node.position)
            case In(operand, items) if not _any_literal(operand, *items):
                return In(marked(operand), tuple(map(marked, items)), position=node.position)
            case Call(name, arguments) if name in _CHOOSING:
                return Call(name, tuple(map(marked, arguments)), position=node.position)
            case Aggregate(name, arguments) if name in _CHOOSING:
                return Aggregate(name, tuple(map(marked, arguments)), position=node.position)
        return node

    return rewrite(expr, change)


def _any_literal(*operands: Expr) -> bool:
    return any(isinstance(operand, Literal) for operand in operands)
