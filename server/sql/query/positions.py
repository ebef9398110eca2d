"""Positions of parts of a statement in its text, for errors."""

from __future__ import annotations

from sqlglot import exp


def find_position(node: object) -> int | None:
    """Return the offset of the first name in a node, from 1; None if it has none."""
    if not isinstance(node, exp.Expr):
        return None
    starts = [found.meta["start"] for found in node.walk() if "start" in found.meta]
    return min(starts) + 1 if starts else None
