"""What changes of records mean for groups, and what is projected of a group.

This is what a view and a client's own aggregation have in common. A view keeps records of its
groups for everybody (server/topics/view.py); those of a client are its own
(server/views/group_records.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from server.expressions.context import NO_CONTEXT, MessageContext
from server.message_types.base import BodyError
from server.sow.record_context import context_of
from server.views.grouping import Group, Grouping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.message_types.base import MessageType
    from server.sow.records import Change, Record
    from server.views.projection import GroupKey, Projection
    from server.views.sources import RowSource


def check_fields(message_type: MessageType, projection: Projection) -> None:
    """Check that messages of a type can have the fields of a projection.

    Raises:
        BodyError: it has no fields of such names, or, being a custom type, fails in another way.
    """
    try:
        message_type.build([(path, None) for path in projection.destinations])
    except BodyError:
        raise
    except Exception as error:  # whatever a library does, it is to be named
        raise BodyError(
            f"message type {message_type.name} fails to make a message with these fields:"
            f" {type(error).__name__}: {error}"
        ) from error


class Origin(Protocol):
    """Where a change of a record comes from."""

    @property
    def received(self) -> float:
        """When the server received it, in seconds since 1970."""

    def describe_publisher(self, context: MessageContext) -> None:
        """Set what expressions may ask about whoever published it."""


class Aggregation:
    """Groups of the rows that records make.

    Args:
        projection: what is projected.
        rows: where the rows come from.
        message_type: the type of the messages that are made.
        key_domain: what SOW keys of groups are made with.
        is_joined: whether rows are made from records of several topics.
        in_order: whether changes come in the order in which they were made; if not, the record that
            was updated last counts as the one that came last.

    Raises:
        BodyError: the message type has no fields of such names.
    """

    def __init__(
        self,
        projection: Projection,
        rows: RowSource,
        message_type: MessageType,
        key_domain: str,
        *,
        is_joined: bool = False,
        in_order: bool = True,
    ) -> None:
        check_fields(message_type, projection)
        self._projection: Final = projection
        self._rows: Final = rows
        self._type: Final = message_type
        self._grouping: Final = Grouping(projection, key_domain)
        self._in_order: Final = in_order
        self._arguments_ask: Final = projection.arguments_ask and not is_joined

    def change(self, place: int, change: Change, origin: Origin | None) -> Iterator[Group]:
        """Make a change of a record, and give the groups that it touches, perhaps more than once.

        Args:
            place: which of the underlying topics the record is in.
            change: what happened to it.
            origin: where that comes from, None if that is not known any more.
        """
        state = change.record or change.previous
        if state is None:  # it has come and gone while work was put off
            return
        before_context = after_context = NO_CONTEXT
        context: MessageContext | None = None
        if self._arguments_ask:
            before_context = _context(change.previous)
            after_context = _context(change.record)
        if self._projection.fields_ask:
            context = context_of(state)
            if origin is not None:
                origin.describe_publisher(context)
        grouping = self._grouping
        sequence = 0 if self._in_order else state.sequence
        for before, after in self._rows.changes(place, change):
            if before is None:
                if after is not None:
                    yield grouping.enter(after, after_context, context, sequence)
            elif after is None:
                yield grouping.leave(before, before_context)
            else:
                yield from grouping.replace(
                    before, after, before_context, after_context, context, sequence
                )

    @property
    def contents(self) -> dict[GroupKey, Group]:
        """See `Grouping.contents`."""
        return self._grouping.contents

    def settle(self, group: Group) -> bool:
        """See `Grouping.settle`."""
        return self._grouping.settle(group)

    def body(self, group: Group) -> bytes:
        """The message that is made of a group."""
        return self._type.build(self._grouping.fields(group))


def _context(record: Record | None) -> MessageContext:
    return NO_CONTEXT if record is None else context_of(record)
