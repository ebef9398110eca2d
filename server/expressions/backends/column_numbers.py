"""Vectorized arithmetic and comparison of columns of numbers.

For each row the results must equal those of `semantics`. Where those of NumPy would differ, the
result is None and the caller computes the rows one by one: integers beyond 64 bits, division of an
integer by zero, columns that mix integers and doubles.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from server.expressions.backends.columns import Column, Mask, NumberColumn
from server.expressions.semantics import COMPARISON_OPERATORS
from server.expressions.tree import Arithmetic, Expr, Identifier, Literal, Negate

_SAFE: Final = float(2**62)
"""Integers whose magnitude, converted to double, is below this are far from overflow."""

ReadColumn = Callable[[Identifier], Column]


def numbers(node: Expr, read: ReadColumn, length: int) -> NumberColumn | None:
    """Return the value of a node for every row if it has numbers and arithmetic only; else None.

    Args:
        node: the node.
        read: returns the column of an identifier.
        length: number of rows.
    """
    match node:
        case Identifier():
            column = read(node)
            return column if isinstance(column, NumberColumn) else None
        case Literal(int(value)) if -_SAFE < value < _SAFE:
            return NumberColumn(np.broadcast_to(np.int64(value), length))
        case Literal(float(value)):
            return NumberColumn(np.broadcast_to(np.float64(value), length))
        case Negate(operand):
            return _negated(numbers(operand, read, length))
        case Arithmetic(sign, left, right):
            return _arithmetic(sign, left, right, read, length)
    return None


def compare(sign: str, left: NumberColumn, right: NumberColumn, *, truth: bool) -> Mask:
    """Return the mask of the rows where `left sign right` is true, or where it is false."""
    with np.errstate(invalid="ignore"):
        mask: Any = COMPARISON_OPERATORS[sign](left.values, right.values)
    return _where_present(mask if truth else ~mask, left, right)


def _where_present(mask: Mask, *columns: NumberColumn) -> Mask:
    for column in columns:
        if column.valid is not None:
            mask = mask & column.valid
    return mask


def _negated(column: NumberColumn | None) -> NumberColumn | None:
    if column is None or (column.values.dtype == np.int64 and _may_overflow(column.values)):
        return None
    return NumberColumn(-column.values, column.valid, column.integers)


def _arithmetic(
    sign: str, left: Expr, right: Expr, read: ReadColumn, length: int
) -> NumberColumn | None:
    left_column, right_column = numbers(left, read, length), numbers(right, read, length)
    if (
        left_column is None
        or right_column is None
        or left_column.integers is not None
        or right_column.integers is not None
    ):
        return None
    valid = None
    if left_column.valid is not None or right_column.valid is not None:
        valid = left_column.valid_mask() & right_column.valid_mask()
    if left_column.values.dtype == np.int64 and right_column.values.dtype == np.int64:
        result = _integers(sign, left_column.values, right_column.values)
    else:
        result = _doubles(
            sign, left_column.values.astype(np.float64), right_column.values.astype(np.float64)
        )
    return None if result is None else NumberColumn(result, valid)


def _integers(sign: str, left: Any, right: Any) -> Any:
    """Return the operation on integers, or None if a result might not be an integer of 64 bits."""
    if sign in "/%":
        if (right == 0).any() or _may_overflow(left, right):
            return None
        # NumPy rounds down, the language truncates towards zero.
        remainder = np.fmod(left, right)
        return remainder if sign == "%" else (left - remainder) // right
    estimate = _DOUBLES[sign](left.astype(np.float64), right.astype(np.float64))
    return None if _may_overflow(left, right, estimate) else _DOUBLES[sign](left, right)


def _may_overflow(*arrays: Any) -> bool:
    """Return whether any number is so large that integers might overflow."""
    return any(
        len(array) and float(np.abs(array.astype(np.float64)).max()) >= _SAFE for array in arrays
    )


def _doubles(sign: str, left: Any, right: Any) -> Any:
    with np.errstate(all="ignore"):
        result = _DOUBLES[sign](left, right)
        return np.where(right == 0, np.nan, result) if sign in "/%" else result


_DOUBLES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": np.fmod,
}
