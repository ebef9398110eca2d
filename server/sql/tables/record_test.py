"""Tests of single records by a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from server.expressions.regex.budget import SearchAllowance
from server.storage.sow.query.record_filter import RecordFilter

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import Record


def make_record_test(table: RecordTable, filter_: Expr) -> Callable[[Record], bool]:
    """Return a test of records, which raises TooCostlyError if it takes too long."""
    allowance = SearchAllowance()
    test = RecordFilter(table, filter_, search_counter=allowance)

    def matches(record: Record) -> bool:
        allowance.reset()
        return test(record)

    return matches
