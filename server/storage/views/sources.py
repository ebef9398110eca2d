"""The source of a view's rows: those of a single topic.

A `RowSource` converts a change of a record into changes of the rows of a view. Rows of a single
topic are read anew from the previous and the current record, so that none are stored; `join` has
the rows of several topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from server.expressions.backends.compile_message import compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT
from server.expressions.tree import slots
from server.storage.sow.record_context import asks_for_context, context_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.expressions import Functions
    from server.expressions.tree import Expr, Reference
    from server.message_types.base import MessageType
    from server.message_types.select_list import FieldSelection
    from server.storage.sow.records import Record, RecordChange
    from server.storage.sow.store import RecordStore
    from server.storage.views.projection import ProjectionRow

RowChange: TypeAlias = "tuple[ProjectionRow | None, ProjectionRow | None]"
"""A row before and after a change; None where there is none."""


class RowSource(Protocol):
    """The source of a view's rows."""

    def row_changes(self, index: int, change: RecordChange) -> Iterable[RowChange]:
        """Return the changes of rows that follow from a change of a record.

        Args:
            index: the place of the record's topic among the view's underlying topics.
            change: the change; the caller passes all changes, in order.
        """


class SingleSource:
    """Rows of one topic: one for each record that matches a filter.

    Args:
        message_type: the topic's message type.
        inputs: the references that a row contains.
        filter_: the filter, None for all records.
        functions: implementations of the functions that the filter calls.
        shown: the fields that rows may contain, None for all; others are replaced by NULL.
    """

    def __init__(
        self,
        message_type: MessageType,
        inputs: Sequence[Reference],
        filter_: Expr | None,
        functions: Functions,
        shown: FieldSelection | None = None,
    ) -> None:
        filter_slots = () if filter_ is None else slots(filter_)
        layout = (*filter_slots, *inputs)
        # A filter has no aggregates: all its slots are references.
        self._extract: Final = message_type.extractor(
            [slot.path for slot in layout if isinstance(slot, tuple)]
        )
        self._matches: Final = (
            None
            if filter_ is None
            else compile_filter(with_inferred_types(filter_, message_type), functions, layout)
        )
        self._tested_count: Final = len(filter_slots)
        self._hidden_positions: Final = (
            frozenset()
            if shown is None
            else frozenset(
                at for at, field in enumerate(inputs) if not shown.includes_whole(field.path)
            )
        )
        self._needs_context: Final = filter_ is not None and asks_for_context(filter_, functions)

    def row_changes(self, index: int, change: RecordChange) -> Iterable[RowChange]:  # noqa: ARG002 - there is one topic
        """See `RowSource.row_changes`."""
        return ((self._read_row(change.previous), self._read_row(change.record)),)

    def _read_row(self, record: Record | None) -> ProjectionRow | None:
        if record is None:
            return None
        values = self._extract(record.body)
        if self._matches is not None:
            context = context_of(record) if self._needs_context else NO_CONTEXT
            if not self._matches(values, context):
                return None
            values = values[self._tested_count :]
        if self._hidden_positions:
            values = tuple(
                None if at in self._hidden_positions else value for at, value in enumerate(values)
            )
        return values


def in_order(store: RecordStore) -> Iterator[Record]:
    """Return all records of a store, in the order of their last updates."""
    rows = [row for _, row in store.identities()]
    sequences = np.fromiter((store.read_record(row).sequence for row in rows), np.int64, len(rows))
    return (store.read_record(rows[index]) for index in np.argsort(sequences, kind="stable"))
