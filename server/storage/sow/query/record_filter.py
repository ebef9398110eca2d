"""A filter for one record at a time: for candidates, and for records changed during the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from server.expressions import semantics
from server.expressions.backends.compile_message import Predicate, compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT
from server.expressions.regex.budget import SearchCounter
from server.expressions.tree import Expr, conjuncts, paths
from server.message_types.base import Extractor
from server.message_types.paths import Path
from server.storage.sow.indexes.hash_index import texts_by_field
from server.storage.sow.record_context import asks_for_context, context_of
from server.storage.sow.record_table import RecordTable
from server.storage.sow.records import Record

_Texts: TypeAlias = tuple[tuple[str, ...], ...]


class RecordFilter:
    """A filter; None matches everything.

    A filter that only restricts fields to texts, as point queries do, is tested directly: compiling
    it would take much longer than finding the one record.

    Args:
        table: the table of the records.
        expr: the filter.
        restricted: the fields that it restricts to texts, if already determined.
        search_counter: counts long searches; the test raises TooCostlyError beyond it.

    Attributes:
        fields: the fields that it reads.
        needs_context: it needs more than the fields of a record.
    """

    def __init__(
        self,
        table: RecordTable,
        expr: Expr | None,
        restricted: Mapping[Path, tuple[str, ...]] | None = None,
        search_counter: SearchCounter | None = None,
    ) -> None:
        self._search_counter = search_counter
        self._expr = expr
        self._table = table
        self._extract: Extractor | None = None
        self._predicate: Predicate | None = None
        self._allowed_texts: _Texts | None = None
        self.fields: tuple[Path, ...] = ()
        self.needs_context = False
        if expr is None:
            return
        if restricted is None:
            restricted = texts_by_field(expr)
        if len(restricted) == len(conjuncts(expr)):
            self.fields = tuple(restricted)
            self._allowed_texts = tuple(restricted.values())
        else:
            self.fields = paths(expr)
            self.needs_context = asks_for_context(expr, table.options.functions)

    def __call__(self, record: Record) -> bool:
        """Return whether a record matches."""
        if self._expr is None:
            return True
        if self._extract is None:
            self._prepare(self._expr)
            assert self._extract is not None  # noqa: S101 - for the type checker
        values = self._extract(record.body)
        if self._allowed_texts is not None:
            return all(
                value in texts or semantics.is_in(value, texts) is True
                for value, texts in zip(values, self._allowed_texts, strict=True)
            )
        assert self._predicate is not None  # noqa: S101 - for the type checker
        return self._predicate(values, context_of(record) if self.needs_context else NO_CONTEXT)

    def _prepare(self, expr: Expr) -> None:
        self._extract = self._table.extractor(self.fields)
        if self._allowed_texts is None:
            self._predicate = compile_filter(
                with_inferred_types(expr, self._table.message_type),
                self._table.options.functions,
                search_counter=self._search_counter,
            )
