"""Expressions made from others, with some of their nodes replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from server.expressions.tree import Expr


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Replace nodes of an expression.

    Args:
        expr: the expression. It has been parsed, so that it is not deep.
        change: gives another node, which is taken as it is, or the same one: then this is asked of
            the nodes in it.

    Returns:
        The expression itself if nothing has been replaced.
    """
    changed = change(expr)
    if changed is not expr:
        return changed
    others: dict[str, Any] = {}
    for one in fields(expr):
        value = getattr(expr, one.name)
        other = _rewrite_in(value, change)
        if other is not value:
            others[one.name] = other
    return replace(expr, **others) if others else expr


def _rewrite_in(value: object, change: Callable[[Expr], Expr]) -> object:
    """The same for what a node has: an operand, several of them, or something else."""
    if isinstance(value, Expr):
        return rewrite(value, change)
    if not isinstance(value, tuple):
        return value
    others = tuple(_rewrite_in(item, change) for item in value)
    same = all(new is old for new, old in zip(others, value, strict=True))
    return value if same else others
