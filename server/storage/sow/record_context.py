"""The context of a record: its data besides its fields, for filters and enrichment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from server.expressions.functions.registry import Functions
from server.expressions.message_context import MessageContext
from server.expressions.tree import Call, Expr, walk
from server.storage.sow.keys.key_source import key_hash
from server.storage.sow.records import Record, to_seconds


def context_of(record: Record) -> MessageContext:
    """Return the context of a record."""
    if record.context is not None:
        return record.context
    context = MessageContext()
    context.message_size = len(record.body)
    context.correlation_id = record.correlation_id or None
    context.last_updated = to_seconds(record.timestamp)
    context.bookmark = record.bookmark or None
    context.topic_name = record.topic
    context.sow_key = record.key
    context.sow_key_hash = key_hash(record.key)
    return context


def asks_for_context(expr: Expr, functions: Functions) -> bool:
    """Return whether an expression calls a function that reads the message's context."""
    return any(
        isinstance(node, Call) and functions[node.name].context_attribute is not None
        for node in walk(expr)
    )


class RecordContexts(Sequence[MessageContext]):
    """The contexts of rows, each created when it is read.

    Args:
        rows: the rows.
        read: reads a row.
    """

    def __init__(self, rows: Sequence[int], read: Callable[[int], Record]) -> None:
        self._rows = rows
        self._read = read

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> MessageContext: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageContext]: ...
    def __getitem__(self, index: int | slice) -> MessageContext | Sequence[MessageContext]:
        """Return the context of one of the rows."""
        if isinstance(index, slice):
            return RecordContexts(self._rows[index], self._read)
        return context_of(self._read(self._rows[index]))
