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


def test(node: Expr, read: ReadColumn, length: int, *, wanted: bool) -> Mask | None:
    """Return the mask of the rows where a node has the truth `wanted`.

    Returns None if the rows must be tested one by one.

    Args:
        node: a node other than AND, OR and NOT.
        read: returns the column of an identifier.
        length: number of rows.
        wanted: the truth of the rows in the mask.
    """
    tester = _TESTS.get(type(node))
    return None if tester is None else tester(node, read, length, wanted)


def _comparison(node: Comparison, read: ReadColumn, length: int, wanted: bool) -> Mask | None:
    left, right = numbers(node.left, read, length), numbers(node.right, read, length)
    if left is not None and right is not None:
        return compare(node.operator, left, right, wanted=wanted)
    if isinstance(node.left, Literal):
        mirrored = Comparison(MIRRORED[node.operator], node.right, node.left)
        return (
            None if isinstance(node.right, Literal) else _comparison(mirrored, read, length, wanted)
        )
    column = read(node.left) if isinstance(node.left, Identifier) else left
    if isinstance(column, TextColumn):
        return _text_comparison(node.operator, column, node.right, read, wanted)
    if isinstance(column, NumberColumn) and isinstance(node.right, Literal):
        return _number_and_text(node.operator, column, node.right, wanted)
    return None


def _text_comparison(
    sign: str, column: TextColumn, right: Expr, read: ReadColumn, wanted: bool
) -> Mask | None:
    other: Any = None
    if isinstance(right, Literal):
        if not isinstance(right.value, str):
            return None
        other = pa.scalar(text_to_bytes(right.value) or None, pa.binary())
    elif isinstance(right, Identifier) and isinstance(values := read(right), TextColumn):
        other = values.values
    return None if other is None else _mask(_ARROW[sign](column.values, other), wanted)


def _number_and_text(sign: str, column: NumberColumn, right: Literal, wanted: bool) -> Mask | None:
    """Compare numbers with a literal text: it is a number, or greater than all numbers."""
    text = right.value
    if not isinstance(text, str):
        return None
    if text == "":
        return np.zeros(len(column), np.bool_)
    number = numeral(text)
    if number is not None:
        constant = numbers(Literal(number), lambda _: column, len(column))
        return None if constant is None else compare(sign, column, constant, wanted=wanted)
    mask = np.full(len(column), semantics.COMPARATORS[sign](0, text) is True)
    mask[np.isnan(column.values)] = sign == "!="
    return (mask if wanted else ~mask) & column.valid_mask()


def _between(node: Between, read: ReadColumn, length: int, wanted: bool) -> Mask | None:
    low = _comparison(Comparison(">=", node.operand, node.low), read, length, wanted)
    high = _comparison(Comparison("<=", node.operand, node.high), read, length, wanted)
    if low is None or high is None:
        return None
    return low & high if wanted else low | high


def _in(node: In, read: ReadColumn, _length: int, wanted: bool) -> Mask | None:
    literals = [item.value for item in node.items if isinstance(item, Literal)]
    if len(literals) < len(node.items) or not isinstance(node.operand, Identifier):
        return None
    members, column = semantics.LiteralSet(literals), read(node.operand)
    if isinstance(column, TextColumn) and members.only_texts:
        known = pa.array([text_to_bytes(text) for text in members.texts], pa.binary())
        found = pc.is_in(column.values, value_set=known).to_numpy(zero_copy_only=False)
        present = pc.is_valid(column.values).to_numpy(zero_copy_only=False)
    elif isinstance(column, NumberColumn) and not members.large:
        found = np.isin(column.values, np.array([*members.numbers, *members.text_numbers]))
        present = column.valid_mask()
    else:
        return None
    if wanted:
        return np.asarray(found & present)
    return np.zeros(len(column), np.bool_) if members.has_null else np.asarray(~found & present)


def _affix(node: Affix, read: ReadColumn, _length: int, wanted: bool) -> Mask | None:
    texts = [semantics.octets(item.value) for item in node.items if isinstance(item, Literal)]
    if len(texts) < len(node.items) or not isinstance(node.operand, Identifier):
        return None
    column = read(node.operand)
    if not isinstance(column, TextColumn):
        return None
    if None in texts and not wanted:
        return np.zeros(len(column), np.bool_)
    holds = pc.starts_with if node.operator == "BEGINS WITH" else pc.ends_with
    found = np.zeros(len(column), np.bool_)
    for text in texts:
        if text is not None:
            found |= _mask(holds(column.values, pattern=text), wanted=True)
    return found if wanted else _mask(pc.is_valid(column.values), wanted=True) & ~found


def _is_null(node: IsNull, read: ReadColumn, _length: int, wanted: bool) -> Mask | None:
    column = read(node.operand) if isinstance(node.operand, Identifier) else None
    if isinstance(column, NumberColumn):
        present = column.valid_mask()
    elif isinstance(column, TextColumn):
        present = _mask(pc.is_valid(column.values), wanted=True)
    else:
        return None
    return ~present if wanted else present


def _is_nan(node: IsNan, read: ReadColumn, length: int, wanted: bool) -> Mask | None:
    column = numbers(node.operand, read, length)
    if column is None:
        return None
    mask: Mask = np.isnan(column.values) & column.valid_mask()
    return mask if wanted else ~mask


def _truth(node: Expr, read: ReadColumn, length: int, wanted: bool) -> Mask | None:
    """Test a number as a condition."""
    column = numbers(node, read, length)
    if column is None:
        return None
    mask: Mask = (column.values != 0) == wanted
    return mask & ~np.isnan(column.values) & column.valid_mask()


def _mask(truths: pa.Array, wanted: bool) -> Mask:
    """Return the mask of the rows where an Arrow array is true, or false; nulls are neither."""
    chosen = truths if wanted else pc.invert(truths)
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
