"""Operators that are written with their schema: `OPERATOR(pg_catalog.~)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.sqlstate import UNDEFINED_FUNCTION

_OPERATORS: Final[dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]]] = {
    "~": lambda left, right: exp.RegexpLike(this=left, expression=right),
    "!~": lambda left, right: exp.Not(this=exp.RegexpLike(this=left, expression=right)),
    "~*": lambda left, right: exp.RegexpILike(this=left, expression=right),
    "!~*": lambda left, right: exp.Not(this=exp.RegexpILike(this=left, expression=right)),
    "~~": lambda left, right: exp.Like(this=left, expression=right),
    "!~~": lambda left, right: exp.Not(this=exp.Like(this=left, expression=right)),
    "=": lambda left, right: exp.EQ(this=left, expression=right),
    "<>": lambda left, right: exp.NEQ(this=left, expression=right),
    "<": lambda left, right: exp.LT(this=left, expression=right),
    "<=": lambda left, right: exp.LTE(this=left, expression=right),
    ">": lambda left, right: exp.GT(this=left, expression=right),
    ">=": lambda left, right: exp.GTE(this=left, expression=right),
    "+": lambda left, right: exp.Add(this=left, expression=right),
    "-": lambda left, right: exp.Sub(this=left, expression=right),
    "*": lambda left, right: exp.Mul(this=left, expression=right),
    "||": lambda left, right: exp.DPipe(this=left, expression=right),
}


def rewrite_operator(node: exp.Operator) -> exp.Expr:
    """Return the expression of an operator.

    Raises:
        SqlError: there is no such operator.
    """
    sign = str(node.args["operator"]).rpartition(".")[2]
    make = _OPERATORS.get(sign)
    if make is None:
        raise SqlError(UNDEFINED_FUNCTION, f"operator does not exist: {sign}")
    return make(node.this, node.expression)
