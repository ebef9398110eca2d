"""Vectorized tests of columns: each returns the mask of the rows where a node is true, or false.

A test returns None if the columns are not of the kind that it supports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.expressions import semantics
from server.expressions.backends.column_numbers import ReadColumn, compare, numbers
from server.expressions.backends.columns import Mask, NumberColumn, TextColumn
from server.expressions.grammar import MIRRORED
from server.expressions.numerals import numeral
from server.expressions.tree import (
    Affix,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNan,
    IsNull,
    Literal,
)
from server.util.encoding import text_to_bytes

_ARROW: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def test(node: Expr, read: ReadColumn, length: int, *, truth: bool) -> Mask | None:
    """Return the mask of the rows where the truth of a node is `truth`.

    Returns None if the rows must be tested one by one.

    Args:
        node: a node other than AND, OR and NOT.
        read: returns the column of an identifier.
        length: number of rows.
        truth: the truth of the rows in the mask.
    """
    tester = _TESTS.get(type(node))
    return None if tester is None else tester(node, read, length, truth)


def _comparison(node: Comparison, read: ReadColumn, length: int, truth: bool) -> Mask | None:
    left, right = numbers(node.left, read, length), numbers(node.right, read, length)
    if left is not None and right is not None:
        return compare(node.operator, left, right, truth=truth)
    if isinstance(node.left, Literal):
        mirrored = Comparison(MIRRORED[node.operator], node.right, node.left)
        return (
            None if isinstance(node.right, Literal) else _comparison(mirrored, read, length, truth)
        )
    column = read(node.left) if isinstance(node.left, Identifier) else left
    if isinstance(column, TextColumn):
        return _text_comparison(node.operator, column, node.right, read, truth)
    if isinstance(column, NumberColumn) and isinstance(node.right, Literal):
        return _number_and_text(node.operator, column, node.right, truth)
    return None


def _text_comparison(
    sign: str, column: TextColumn, right: Expr, read: ReadColumn, truth: bool
) -> Mask | None:
    constant: Any = None
    if isinstance(right, Literal):
        if not isinstance(right.value, str):
            return None
        constant = pa.scalar(text_to_bytes(right.value) or None, pa.binary())
    elif isinstance(right, Identifier) and isinstance(values := read(right), TextColumn):
        constant = values.values
    return None if constant is None else _mask(_ARROW[sign](column.values, constant), truth)


def _number_and_text(sign: str, column: NumberColumn, right: Literal, truth: bool) -> Mask | None:
    """Compare numbers with a literal text: it is a number, or greater than all numbers."""
    text = right.value
    if not isinstance(text, str):
        return None
    if text == "":
        return np.zeros(len(column), np.bool_)
    number = numeral(text)
    if number is not None:
        constant = numbers(Literal(number), lambda _: column, len(column))
        return None if constant is None else compare(sign, column, constant, truth=truth)
    mask = np.full(len(column), semantics.COMPARATORS[sign](0, text) is True)
    mask[np.isnan(column.values)] = sign == "!="
    return (mask if truth else ~mask) & column.valid_mask()


def _between(node: Between, read: ReadColumn, length: int, truth: bool) -> Mask | None:
    low = _comparison(Comparison(">=", node.operand, node.low), read, length, truth)
    high = _comparison(Comparison("<=", node.operand, node.high), read, length, truth)
    if low is None or high is None:
        return None
    return low & high if truth else low | high


def _in(node: In, read: ReadColumn, _length: int, truth: bool) -> Mask | None:
    literals = [item.value for item in node.items if isinstance(item, Literal)]
    if len(literals) < len(node.items) or not isinstance(node.operand, Identifier):
        return None
    members, column = semantics.LiteralSet(literals), read(node.operand)
    if isinstance(column, TextColumn) and members.only_texts:
        values = pa.array([text_to_bytes(text) for text in members.texts], pa.binary())
        mask = pc.is_in(column.values, value_set=values).to_numpy(zero_copy_only=False)
        present = pc.is_valid(column.values).to_numpy(zero_copy_only=False)
    elif isinstance(column, NumberColumn) and not members.large:
        mask = np.isin(column.values, np.array([*members.numbers, *members.text_numbers]))
        present = column.valid_mask()
    else:
        return None
    if truth:
        return np.asarray(mask & present)
    return np.zeros(len(column), np.bool_) if members.has_null else np.asarray(~mask & present)


def _affix(node: Affix, read: ReadColumn, _length: int, truth: bool) -> Mask | None:
    texts = [semantics.octets(item.value) for item in node.items if isinstance(item, Literal)]
    if len(texts) < len(node.items) or not isinstance(node.operand, Identifier):
        return None
    column = read(node.operand)
    if not isinstance(column, TextColumn):
        return None
    if None in texts and not truth:
        return np.zeros(len(column), np.bool_)
    holds = pc.starts_with if node.operator == "BEGINS WITH" else pc.ends_with
    mask = np.zeros(len(column), np.bool_)
    for text in texts:
        if text is not None:
            mask |= _mask(holds(column.values, pattern=text), truth=True)
    return mask if truth else _mask(pc.is_valid(column.values), truth=True) & ~mask


def _is_null(node: IsNull, read: ReadColumn, _length: int, truth: bool) -> Mask | None:
    column = read(node.operand) if isinstance(node.operand, Identifier) else None
    if isinstance(column, NumberColumn):
        present = column.valid_mask()
    elif isinstance(column, TextColumn):
        present = _mask(pc.is_valid(column.values), truth=True)
    else:
        return None
    return ~present if truth else present


def _is_nan(node: IsNan, read: ReadColumn, length: int, truth: bool) -> Mask | None:
    column = numbers(node.operand, read, length)
    if column is None:
        return None
    mask: Mask = np.isnan(column.values) & column.valid_mask()
    return mask if truth else ~mask


def _truth(node: Expr, read: ReadColumn, length: int, truth: bool) -> Mask | None:
    """Test a number as a condition."""
    column = numbers(node, read, length)
    if column is None:
        return None
    mask: Mask = (column.values != 0) == truth
    return mask & ~np.isnan(column.values) & column.valid_mask()


def _mask(truths: pa.Array, truth: bool) -> Mask:
    """Return the mask of the rows where an Arrow array is true, or false; nulls are neither."""
    chosen = truths if truth else pc.invert(truths)
    if chosen.null_count:
        chosen = pc.fill_null(chosen, False)
    return np.asarray(chosen.to_numpy(zero_copy_only=False), np.bool_)


_TESTS: Final[Mapping[type[Expr], Callable[[Any, ReadColumn, int, bool], Mask | None]]] = {
    Comparison: _comparison,
    Between: _between,
    In: _in,
    Affix: _affix,
    IsNull: _is_null,
    IsNan: _is_nan,
    Identifier: _truth,
}
