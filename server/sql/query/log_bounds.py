"""Conditions on the place of an entry in the log, which limit the part that a scan reads.

    _txid > 17                             exact: DuckDB need not test it again
    _timestamp >= now() - interval '1 h'   the part is longer by a second; DuckDB tests it again
    _bookmark = '1|2|'                     the entry, and later ones of the same name
    _bookmark > '1|2|'                     exact: after that entry, in the order of the log

The texts of bookmarks have no meaningful order. So comparisons of them other than by `=` are for
conditions of their own with a constant, and others in WHERE are errors.

An expression for a time is evaluated once, before the scan. It may have constants, parameters,
intervals and the current time, and no function that has another value for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.tables import Column, LogBound
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED

_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED: Final = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_KINDS: Final = {"_txid": "txid", "_timestamp": "timestamp", "_bookmark": "bookmark"}
_TIME_NODES: Final = (
    *(exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var),
    *(exp.Parameter, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Identifier),
    *(exp.CurrentTimestamp, exp.CurrentDate, exp.TimestampTrunc, exp.DateTrunc),
)
"""The nodes that an expression for a time may have."""

_MAX_TXID: Final = 2**63


class FoundBounds(NamedTuple):
    """A condition as bounds.

    Attributes:
        bounds: the bounds; all of them hold.
        is_exact: true for exactly the same rows; if not, for more.
    """

    bounds: tuple[LogBound, ...]
    is_exact: bool


class BoundFinder:
    """Finds bounds in conditions on one table of history, or of statistics over time.

    Args:
        column: returns the column of the table that an expression is; None for others.
        constant: returns the value of a constant or a parameter; another object for anything else.
        evaluate: returns the microseconds since 1970 of an expression for a time; None if it
            cannot be evaluated.
    """

    def __init__(
        self,
        column: Callable[[exp.Expr], Column | None],
        constant: Callable[[exp.Expr], object],
        evaluate: Callable[[exp.Expr], int | None],
    ) -> None:
        self._column: Final = column
        self._constant: Final = constant
        self._evaluate: Final = evaluate

    def find(self, condition: exp.Expr) -> FoundBounds | None:
        """Return a condition as bounds; None if it is not about the place of an entry."""
        while isinstance(condition, exp.Paren):
            condition = condition.this
        if isinstance(condition, exp.Between):
            if condition.args.get("symmetric"):
                return None
            parts = [
                self._bound(condition.this, ">=", condition.args["low"]),
                self._bound(condition.this, "<=", condition.args["high"]),
            ]
        elif type(condition) in _SIGNS:
            sign = _SIGNS[type(condition)]
            left, right = condition.this, condition.expression
            if self._kind(left) is None:
                left, right, sign = right, left, _FLIPPED[sign]
            parts = [self._bound(left, sign, right)]
        else:
            return None
        found = [part for part in parts if part is not None]
        if len(found) != len(parts):
            return None
        is_exact = all(
            bound.kind == "txid" or (bound.kind == "bookmark" and bound.sign != "=")
            for bound in found
        )
        return FoundBounds(tuple(found), is_exact)

    def check(self, condition: exp.Expr) -> None:
        """Check a condition that DuckDB decides.

        Raises:
            SqlError: it compares bookmarks by their order.
        """
        for node in condition.find_all(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between):
            operands = (node.this, node.args.get("expression"))
            if any(
                operand is not None and self._kind(operand) == "bookmark" for operand in operands
            ):
                raise SqlError(
                    FEATURE_NOT_SUPPORTED,
                    "bookmarks are compared with a constant, in a condition of its own",
                    hint="Compare _txid, which is the place in the log.",
                )

    def _kind(self, node: exp.Expr) -> str | None:
        column = self._column(node)
        return None if column is None or column.path is not None else _KINDS.get(column.name)

    def _bound(self, left: exp.Expr, sign: str, right: exp.Expr) -> LogBound | None:
        kind = self._kind(left)
        if kind is None:
            return None
        value: int | str | None
        if kind == "timestamp":
            is_time = all(isinstance(node, _TIME_NODES) for node in right.walk())
            value = self._evaluate(right) if is_time else None
        else:
            constant = self._constant(right)
            if kind == "txid":
                is_number = isinstance(constant, int) and not isinstance(constant, bool)
                value = int(str(constant)) if is_number else None
                value = value if value is not None and abs(value) < _MAX_TXID else None
            else:
                value = str(constant) if isinstance(constant, str) else None
        return None if value is None else LogBound(kind, sign, value)


def no_evaluation(_: exp.Expr) -> int | None:
    """Evaluate nothing: conditions on times limit no scan."""
    return None
