"""Filters over segments: a test of a field is evaluated once for each distinct value.

Only filters of comparisons and the like are supported, with tests that read one field each: such
are those that conditions of SQL become (server/sql/query/condition_filters.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.expressions.backends.compile_columns import ColumnBatch, ColumnFilter
from server.expressions.inference import with_inferred_types
from server.expressions.tree import (
    Affix,
    And,
    Comparison,
    Identifier,
    In,
    IsNan,
    IsNull,
    Literal,
    Not,
    Or,
    paths,
)
from server.sql.tables.column_segments import DictionaryColumn

if TYPE_CHECKING:
    from server.expressions.backends.columns import Mask, MixedColumn, TextColumn
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.sql.tables.column_segments import SegmentField

_LOGIC: Final = (And, Or, Not)
_TESTS: Final = (Comparison, In, Affix, IsNull, IsNan, Identifier)
_OPERANDS: Final = (Identifier, Literal)


def is_supported(filter_: Expr) -> bool:
    """Return whether a filter can be evaluated over segments."""
    pending = [filter_]
    while pending:
        node = pending.pop()
        if isinstance(node, _LOGIC):
            pending.extend(node.children())
        elif not _is_test(node):
            return False
    return True


def _is_test(node: Expr) -> bool:
    """Return whether a node tests one field."""
    has_plain_operands = all(isinstance(operand, _OPERANDS) for operand in node.children())
    return isinstance(node, _TESTS) and has_plain_operands and len(paths(node)) == 1


class SegmentFilter:
    """A filter over segments; for one thread.

    Args:
        filter_: the filter, which is supported.
        message_type: the type of the records.
    """

    def __init__(self, filter_: Expr, message_type: MessageType) -> None:
        self._filter: Final = with_inferred_types(filter_, message_type)
        self._tests: dict[tuple[Expr, bool], ColumnFilter] = {}
        self._decided: dict[tuple[Expr, bool], _DecidedValues] = {}

    def mask(self, fields: Mapping[Path, SegmentField]) -> Mask:
        """Return the mask of the rows of a segment that match.

        Args:
            fields: the fields that the filter reads.
        """
        return self._mask(self._filter, fields, truth=True)

    def _mask(self, node: Expr, fields: Mapping[Path, SegmentField], *, truth: bool) -> Mask:
        """Return the mask of the rows where a node is true, or of those where it is false."""
        if isinstance(node, Not):
            return self._mask(node.operand, fields, truth=not truth)
        if not isinstance(node, And | Or):
            return self._test(node, fields, truth=truth)
        combine = np.logical_and if isinstance(node, And) == truth else np.logical_or
        masks = [self._mask(operand, fields, truth=truth) for operand in node.operands]
        found: Mask = combine.reduce(masks)
        return found

    def _test(self, node: Expr, fields: Mapping[Path, SegmentField], *, truth: bool) -> Mask:
        (path,) = paths(node)
        field = fields[path]
        column = field.column
        if column is None:
            test = self._column_filter(node, truth=truth)
            return np.concatenate([test(ColumnBatch([one], len(one))) for one in field.blocks])
        if not isinstance(column, DictionaryColumn):
            return self._column_filter(node, truth=truth)(ColumnBatch([column], len(column)))
        decided = self._decided.get((node, truth))
        if decided is None or decided.values is not column.values:
            test = self._column_filter(node, truth=truth)
            matches = test(ColumnBatch([column.values], len(column.values)))
            decided = _DecidedValues(column.values, matches, np.flatnonzero(matches))
            self._decided[node, truth] = decided
        if len(decided.codes) == 1:
            return np.asarray(column.codes == decided.codes[0])
        mask: Mask = decided.matches.take(column.codes)
        return mask

    def _column_filter(self, node: Expr, *, truth: bool) -> ColumnFilter:
        """Return the test whether a node is true, or whether it is false."""
        test = self._tests.get((node, truth))
        if test is None:
            test = self._tests[node, truth] = ColumnFilter(node if truth else Not(node))
        return test


class _DecidedValues(NamedTuple):
    """A test of distinct values.

    Attributes:
        values: the values.
        matches: the mask of the matching rows.
        codes: the codes of matching values.
    """

    values: TextColumn | MixedColumn
    matches: Mask
    codes: NDArray[np.intp]
