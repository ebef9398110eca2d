"""Applies changes of records to groups, and builds the message of a group.

This is the common part of a view and a client's own aggregation. A view stores records of its
groups for all clients (server/topics/view_topic.py); those of a client are its own
(server/storage/views/group_records.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.message_types.base import BodyError
from server.storage.sow.record_context import context_of
from server.storage.views.groups import Group, GroupTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.message_types.base import MessageType
    from server.storage.sow.records import Record, RecordChange
    from server.storage.views.projection import GroupKey, Projection
    from server.storage.views.sources import RowSource
    from server.topics.subscriptions.delivery.envelope import Envelope


def check_fields(message_type: MessageType, projection: Projection) -> None:
    """Check that messages of a type can have the fields of a projection.

    Raises:
        BodyError: the type has no fields of such names, or, if it is a custom type, it fails in
            another way.
    """
    try:
        message_type.build([(path, None) for path in projection.destinations])
    except BodyError:
        raise
    except Exception as error:  # a custom type's library may raise anything: report it by name
        raise BodyError(
            f"message type {message_type.name} fails to make a message with these fields:"
            f" {type(error).__name__}: {error}"
        ) from error


class Aggregation:
    """Groups of the rows that are made from records.

    Args:
        projection: the projection.
        row_source: the source of the rows.
        message_type: the type of the messages that are built.
        key_domain: the key domain for the SOW keys of groups.
        is_joined: rows are made from records of several topics.
        in_order: changes arrive in the order in which they were made; if not, the record that was
            updated last counts as the most recent one.

    Raises:
        BodyError: the message type has no fields of such names.
    """

    def __init__(
        self,
        projection: Projection,
        row_source: RowSource,
        message_type: MessageType,
        key_domain: str,
        *,
        is_joined: bool = False,
        in_order: bool = True,
    ) -> None:
        check_fields(message_type, projection)
        self._projection: Final = projection
        self._row_source: Final = row_source
        self._type: Final = message_type
        self._group_table: Final = GroupTable(projection, key_domain)
        self._in_order: Final = in_order
        self._arguments_need_context: Final = projection.arguments_need_context and not is_joined

    def apply_change(
        self, index: int, change: RecordChange, origin: Envelope | None
    ) -> Iterator[Group]:
        """Apply a change of a record, and yield the groups affected, possibly more than once.

        Args:
            index: the place of the record's topic among the underlying topics.
            change: the change of the record.
            origin: the origin of the change, None if it is not known any more.
        """
        state = change.record or change.previous
        if state is None:  # the record was added and removed while the work was deferred
            return
        before_context = after_context = NO_CONTEXT
        context: MessageContext | None = None
        if self._arguments_need_context:
            before_context = _context(change.previous)
            after_context = _context(change.record)
        if self._projection.fields_need_context:
            context = context_of(state)
            if origin is not None:
                origin.describe_publisher(context)
        group_table = self._group_table
        sequence = 0 if self._in_order else state.sequence
        for before, after in self._row_source.row_changes(index, change):
            if before is None:
                if after is not None:
                    yield group_table.add_row(after, after_context, context, sequence)
            elif after is None:
                yield group_table.remove_row(before, before_context)
            else:
                yield from group_table.replace_row(
                    before, after, before_context, after_context, context, sequence
                )

    @property
    def groups(self) -> dict[GroupKey, Group]:
        """See `GroupTable.groups`."""
        return self._group_table.groups

    def remove_if_empty(self, group: Group) -> bool:
        """See `GroupTable.remove_if_empty`."""
        return self._group_table.remove_if_empty(group)

    def build_body(self, group: Group) -> bytes:
        """Build the message of a group."""
        return self._type.build(self._group_table.compute_fields(group))


def _context(record: Record | None) -> MessageContext:
    return NO_CONTEXT if record is None else context_of(record)
