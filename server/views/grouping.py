"""Groups of rows, kept right as rows come, change and go.

The cost of a change depends on what is projected and not on how many rows a group has: what goes is
taken out of the group's accumulators, and what comes is put in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.expressions.context import NO_CONTEXT, MessageContext
from server.sow.keys import KeyHash

if TYPE_CHECKING:
    from server.message_types.base import Field
    from server.views.aggregates import Accumulator
    from server.views.projection import GroupKey, Projection, Row


class Group:
    """The rows of one group.

    Attributes:
        key: the texts of the values that it is grouped by.
        rows: how many rows it has.
        last: the row that came last; it stays when that row goes.
        context: what functions may ask about the message that came last.
        accumulators: one for each that the projection keeps.
        sequence: the place of that row among all that have come.
        sow_key: the SOW key of its record.
    """

    __slots__ = ("accumulators", "context", "key", "last", "rows", "sequence", "sow_key")

    def __init__(
        self, key: GroupKey, sow_key: str, accumulators: list[Accumulator], last: Row
    ) -> None:
        self.key = key
        self.rows = 0
        self.last = last
        self.sequence = 0
        self.context: MessageContext = NO_CONTEXT
        self.accumulators = accumulators
        self.sow_key = sow_key

    def show(self, row: Row, context: MessageContext, sequence: int) -> None:
        """Take a row for the one that came last, unless one with a later place has come."""
        if sequence >= self.sequence:
            self.last = row
            self.sequence = sequence
            self.context = context


class Grouping:
    """All groups of a view or of an aggregated subscription.

    Args:
        projection: what is projected.
        key_domain: what SOW keys of groups are made with.
    """

    def __init__(self, projection: Projection, key_domain: str) -> None:
        self._projection: Final = projection
        self._key_hash: Final = KeyHash(key_domain)
        self._groups: dict[GroupKey, Group] = {}

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    @property
    def contents(self) -> dict[GroupKey, Group]:
        """The groups by key; whoever needs them no more may empty it."""
        return self._groups

    def adopt(self, group: Group) -> None:
        """Go on with a group that has been kept elsewhere."""
        self._groups[group.key] = group

    def enter(
        self,
        row: Row,
        context: MessageContext = NO_CONTEXT,
        origin: MessageContext | None = None,
        sequence: int = 0,
    ) -> Group:
        """Add a row.

        Args:
            row: the row.
            context: what aggregated expressions may ask about the message; when the row leaves,
                it has to be the same.
            origin: what other expressions may ask about it, if that is more.
            sequence: its place among all rows, where they do not come in that order.

        Returns:
            The group that it has come to.
        """
        group = self._group(row)
        group.rows += 1
        group.show(row, context if origin is None else origin, sequence)
        values = self._projection.arguments(row, context)
        for kept, accumulator in zip(self._projection.kept, group.accumulators, strict=True):
            accumulator.add(values[kept.argument])
        return group

    def leave(self, row: Row, context: MessageContext = NO_CONTEXT) -> Group:
        """Take a row away that has been added.

        Returns:
            The group that it was in. It stays until `settle`, for other rows may come to it.
        """
        group = self._groups[self._projection.group_of(row)]
        group.rows -= 1
        values = self._projection.arguments(row, context)
        for kept, accumulator in zip(self._projection.kept, group.accumulators, strict=True):
            accumulator.remove(values[kept.argument])
        return group

    def replace(
        self,
        before: Row,
        after: Row,
        before_context: MessageContext = NO_CONTEXT,
        after_context: MessageContext = NO_CONTEXT,
        origin: MessageContext | None = None,
        sequence: int = 0,
    ) -> tuple[Group, ...]:
        """Put one row in the place of another one, see `enter` and `leave`.

        Returns:
            The groups that have changed: the one that the old row was in, then the other one.
        """
        projection = self._projection
        key = projection.group_of(after)
        if key != projection.group_of(before):
            left = self.leave(before, before_context)
            return left, self.enter(after, after_context, origin, sequence)
        group = self._groups[key]
        group.show(after, after_context if origin is None else origin, sequence)
        old = projection.arguments(before, before_context)
        new = projection.arguments(after, after_context)
        accumulators = group.accumulators
        for place, (_, argument) in enumerate(projection.kept):
            one, other = old[argument], new[argument]
            if one is not other and (type(one) is not type(other) or one != other):
                accumulators[place].remove(one)
                accumulators[place].add(other)
        return (group,)

    def settle(self, group: Group) -> bool:
        """Forget a group if no rows are left in it.

        Returns:
            Whether the group is still there.
        """
        if group.rows:
            return True
        self._groups.pop(group.key, None)
        return False

    def fields(self, group: Group) -> list[Field]:
        """What is projected of a group."""
        return self._projection.values(group.last, group.accumulators, group.context)

    def _group(self, row: Row) -> Group:
        key = self._projection.group_of(row)
        group = self._groups.get(key)
        if group is None:
            accumulators = [kept.make() for kept in self._projection.kept]
            group = Group(key, self._key_hash.of_values(key), accumulators, row)
            self._groups[key] = group
        return group
