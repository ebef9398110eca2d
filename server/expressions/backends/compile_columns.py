"""Evaluates expressions over columns: one pass over arrays tests many records.

A query of a SOW topic tests every record against one filter. If a column is homogeneous, NumPy and
Arrow test all rows at once; other tests are evaluated row by row with the function that
`compile_message` makes, and only for rows that are still undecided. The results are the same.

As there, logic needs no third value: a node has a mask of the rows for which it is true, and one of
the rows for which it is false; rows in neither are NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.expressions.backends.column_numbers import numbers
from server.expressions.backends.column_tests import test
from server.expressions.backends.columns import Column, Indexes, Mask, TextColumn, column_of
from server.expressions.backends.compile_message import Predicate, compile_filter, compile_value
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import Functions
from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.expressions.regex.budget import SearchCounter
from server.expressions.tree import And, Expr, Identifier, Not, Or, slots
from server.message_types.base import Value


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """The records to evaluate.

    Attributes:
        columns: one for each slot of the layout, all of one length.
        length: number of rows; there may be no columns.
        contexts: one for each row, or None if only the fields are known.
    """

    columns: Sequence[Column]
    length: int
    contexts: Sequence[MessageContext] | None = None

    def take(self, rows: Indexes) -> ColumnBatch:
        """Return some of the rows."""
        contexts = None if self.contexts is None else [self.contexts[row] for row in rows]
        return ColumnBatch([column.take(rows) for column in self.columns], len(rows), contexts)

    def iterate_rows(self) -> list[tuple[tuple[Value, ...], MessageContext]]:
        """Return the rows one by one: values and context."""
        values: list[tuple[Value, ...]] = [()] * self.length
        if self.columns:
            values = list(zip(*(column.to_values() for column in self.columns), strict=True))
        return list(zip(values, self.contexts or [NO_CONTEXT] * self.length, strict=True))


class ColumnFilter:
    """A filter over columns."""

    def __init__(
        self,
        expr: Expr,
        functions: Functions = BUILTINS,
        search_counter: SearchCounter | None = None,
    ) -> None:
        """Prepare a filter.

        Args:
            expr: the tree.
            functions: implementations of the functions that it calls.
            search_counter: counts long searches; the filter raises TooCostlyError when it is used
                up.
        """
        self._search_counter = search_counter
        self._expr = expr
        self._functions = functions
        self._layout = slots(expr)
        self._column_indexes = {slot: index for index, slot in enumerate(self._layout)}
        self._predicates: dict[Expr, Predicate] = {}

    def __call__(self, rows: ColumnBatch) -> Mask:
        """Return the mask of the rows that match."""
        return self._mask(self._expr, rows, truth=True)

    def _mask(self, node: Expr, rows: ColumnBatch, *, truth: bool) -> Mask:
        """Return the mask of the rows where a node is true, or of those where it is false."""
        if isinstance(node, Not):
            return self._mask(node.operand, rows, truth=not truth)
        if isinstance(node, And | Or):
            return self._logic_mask(node, rows, truth=truth)
        mask = self._vectorized_mask(node, rows, truth=truth)
        return self._scalar_mask(node, rows, truth=truth) if mask is None else mask

    def _logic_mask(self, node: And | Or, rows: ColumnBatch, *, truth: bool) -> Mask:
        """Evaluate AND or OR, vectorized operands first.

        An AND is true where all operands are, false where any is; an OR the other way round.
        """
        needs_all = isinstance(node, And) == truth
        mask = np.full(rows.length, needs_all)
        slow: list[Expr] = []
        for operand in node.operands:
            operand_mask = self._vectorized_mask(operand, rows, truth=truth)
            if operand_mask is None:
                slow.append(operand)
            elif needs_all:
                mask &= operand_mask
            else:
                mask |= operand_mask
        for operand in slow:
            undecided = np.flatnonzero(mask == needs_all)
            if len(undecided) == 0:
                break
            few = rows if len(undecided) == rows.length else rows.take(undecided)
            mask[undecided] = self._mask(operand, few, truth=truth)
        return mask

    def _vectorized_mask(self, node: Expr, rows: ColumnBatch, *, truth: bool) -> Mask | None:
        return test(node, lambda field: self._column(field, rows), rows.length, truth=truth)

    def _column(self, field: Identifier, rows: ColumnBatch) -> Column:
        return rows.columns[self._column_indexes[field.reference]]

    def _scalar_mask(self, node: Expr, rows: ColumnBatch, *, truth: bool) -> Mask:
        tested = node if truth else Not(node)
        predicate = self._predicates.get(tested)
        if predicate is None:
            predicate = compile_filter(tested, self._functions, self._layout, self._search_counter)
            self._predicates[tested] = predicate
        return np.array(
            [predicate(values, context) for values, context in rows.iterate_rows()], np.bool_
        )


class ColumnValue:
    """An expression over columns, for its values."""

    def __init__(self, expr: Expr, functions: Functions = BUILTINS) -> None:
        """Prepare an expression.

        Args:
            expr: the tree.
            functions: implementations of the functions that it calls.
        """
        self._expr = expr
        layout = slots(expr)
        self._column_indexes = {slot: index for index, slot in enumerate(layout)}
        self._evaluate = compile_value(expr, functions, layout)

    def __call__(self, rows: ColumnBatch) -> Column:
        """Return the value for every row."""
        at_once = numbers(
            self._expr,
            lambda field: rows.columns[self._column_indexes[field.reference]],
            rows.length,
        )
        if at_once is not None:
            return at_once
        if isinstance(self._expr, Identifier):
            column = rows.columns[self._column_indexes[self._expr.reference]]
            if isinstance(column, TextColumn):
                return column
        return column_of(
            [self._evaluate(values, context) for values, context in rows.iterate_rows()]
        )
