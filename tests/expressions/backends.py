"""One expression through every back end, compared."""

from __future__ import annotations

from collections.abc import Sequence

from server.expressions import Functions, parse, semantics, to_text
from server.expressions.backends.columns import column_of
from server.expressions.backends.compile_columns import ColumnBatch, ColumnFilter, ColumnValue
from server.expressions.backends.compile_message import compile_filter, compile_value
from server.expressions.context_rules import ContextKind
from server.expressions.description import describe
from server.expressions.message_context import MessageContext
from server.expressions.tree import Expr, slots
from server.message_types.base import Value
from tests.expressions.cases import same


def evaluate_everywhere(
    tree: Expr,
    records: Sequence[tuple[Value, ...]],
    functions: Functions,
    context: MessageContext,
    kind: ContextKind = ContextKind.FILTER,
) -> list[Value]:
    """The value for each record, after checking that all back ends agree on it and on matching."""
    evaluate = compile_value(tree, functions)
    predicate = compile_filter(tree, functions)
    results = [evaluate(record, context) for record in records]
    matches = [predicate(record, context) for record in records]
    for result, match in zip(results, matches, strict=True):
        assert match is (semantics.truth(result) is True), f"{to_text(tree)}: {result!r}"
    columns = [
        column_of([record[place] for record in records]) for place in range(len(slots(tree)))
    ]
    rows = ColumnBatch(columns, len(records), [context] * len(records))
    assert ColumnFilter(tree, functions)(rows).tolist() == matches, to_text(tree)
    by_column = ColumnValue(tree, functions)(rows).to_values()
    for result, column_result in zip(results, by_column, strict=True):
        expected = None if result == "" else result
        assert same(semantics.first(column_result), expected), f"{to_text(tree)}: {column_result!r}"
    assert parse(to_text(tree), kind, functions) == tree
    assert describe(tree)["node"]
    return results
