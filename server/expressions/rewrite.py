"""Rewrites expressions by replacing some of their nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from server.expressions.tree import Expr


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Replace nodes of an expression.

    Args:
        expr: the expression. It has been parsed, so its depth is limited.
        change: returns another node, which is not rewritten further, or the same node, whose
            children are then rewritten.

    Returns:
        The rewritten expression; the expression itself if nothing has been replaced.
    """
    changed = change(expr)
    if changed is not expr:
        return changed
    others: dict[str, Any] = {}
    for field in fields(expr):
        value = getattr(expr, field.name)
        rewritten = _rewrite_in(value, change)
        if rewritten is not value:
            others[field.name] = rewritten
    return replace(expr, **others) if others else expr


def _rewrite_in(value: object, change: Callable[[Expr], Expr]) -> object:
    """Rewrite the value of a node's field: an operand, a tuple of them, or something else."""
    if isinstance(value, Expr):
        return rewrite(value, change)
    if not isinstance(value, tuple):
        return value
    others = tuple(_rewrite_in(item, change) for item in value)
    same = all(new is old for new, old in zip(others, value, strict=True))
    return value if same else others
