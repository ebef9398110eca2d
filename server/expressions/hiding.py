"""Expressions as they are for somebody who may not see all fields of a message.

Whoever may not see a field is not to learn of it by asking either: what an expression reads of it
is NULL, as of a message that does not have it. So is the size of the message, which would tell of
what is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.expressions.rewriting import rewrite
from server.expressions.tree import Call, Expr, Identifier, Literal
from server.message_types.paths import Path

_OF_THE_WHOLE: Final = frozenset({"MESSAGE_SIZE"})
"""Functions that tell of all fields."""


def hide(expr: Expr, shows: Callable[[Path], bool]) -> Expr:
    """Leave of an expression what somebody may ask who does not see all fields.

    Args:
        expr: the expression. It has been parsed, so that it is not deep.
        shows: whether a field may be seen.
    """

    def change(node: Expr) -> Expr:
        if isinstance(node, Identifier) and not shows(node.path):
            return Literal(None, position=node.position)
        if isinstance(node, Call) and node.name in _OF_THE_WHOLE:
            return Literal(None, position=node.position)
        return node

    return rewrite(expr, change)
