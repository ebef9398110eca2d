"""Redacts expressions of users that are not entitled to all fields of a message.

A user must not learn of a hidden field through an expression either: the field reads as NULL, as in
a message that does not have it. So does the size of the message, which would reveal something about
hidden fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.expressions.rewrite import rewrite
from server.expressions.tree import Call, Expr, Identifier, Literal
from server.message_types.paths import Path

_WHOLE_MESSAGE_FUNCTIONS: Final = frozenset({"MESSAGE_SIZE"})
"""Functions that reveal something about all fields."""


def hide(expr: Expr, shows: Callable[[Path], bool]) -> Expr:
    """Return the expression with NULL for hidden fields, and for functions that reveal them.

    Args:
        expr: the expression. It has been parsed, so its depth is limited.
        shows: returns whether the user may see a field.
    """

    def change(node: Expr) -> Expr:
        if isinstance(node, Identifier) and not shows(node.path):
            return Literal(None, position=node.position)
        if isinstance(node, Call) and node.name in _WHOLE_MESSAGE_FUNCTIONS:
            return Literal(None, position=node.position)
        return node

    return rewrite(expr, change)
