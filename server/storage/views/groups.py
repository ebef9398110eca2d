"""Groups of rows, updated incrementally as rows are added, changed and removed.

The cost of a change depends on the projection, not on the number of rows of a group: old values are
removed from the group's accumulators, and new ones are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.storage.sow.keys.key_source import KeyHash

if TYPE_CHECKING:
    from server.message_types.base import FieldValue
    from server.storage.views.aggregates import Accumulator
    from server.storage.views.projection import GroupKey, Projection, ProjectionRow


class Group:
    """The rows of one group.

    Attributes:
        key: the texts of the values that it is grouped by.
        row_count: the number of its rows.
        latest_row: the most recent row; it stays when that row is removed.
        latest_context: the context of the most recent message, for functions.
        accumulators: one for each of `Projection.accumulator_specs`.
        latest_sequence: the sequence of `latest_row` among all rows.
        sow_key: the SOW key of its record.
    """

    __slots__ = (
        "accumulators",
        "key",
        "latest_context",
        "latest_row",
        "latest_sequence",
        "row_count",
        "sow_key",
    )

    def __init__(
        self,
        key: GroupKey,
        sow_key: str,
        accumulators: list[Accumulator],
        latest_row: ProjectionRow,
    ) -> None:
        self.key = key
        self.row_count = 0
        self.latest_row = latest_row
        self.latest_sequence = 0
        self.latest_context: MessageContext = NO_CONTEXT
        self.accumulators = accumulators
        self.sow_key = sow_key

    def set_latest_row(self, row: ProjectionRow, context: MessageContext, sequence: int) -> None:
        """Set the most recent row, unless a row with a later sequence is already set."""
        if sequence >= self.latest_sequence:
            self.latest_row = row
            self.latest_sequence = sequence
            self.latest_context = context


class GroupTable:
    """All groups of a view or of an aggregated subscription.

    Args:
        projection: the projection.
        key_domain: the key domain for the SOW keys of groups.
    """

    def __init__(self, projection: Projection, key_domain: str) -> None:
        self._projection: Final = projection
        self._key_hash: Final = KeyHash(key_domain)
        self._groups: dict[GroupKey, Group] = {}

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    @property
    def groups(self) -> dict[GroupKey, Group]:
        """The groups by key; the caller may empty it if they are no longer needed."""
        return self._groups

    def restore_group(self, group: Group) -> None:
        """Add a group that was stored elsewhere."""
        self._groups[group.key] = group

    def add_row(
        self,
        row: ProjectionRow,
        context: MessageContext = NO_CONTEXT,
        origin: MessageContext | None = None,
        sequence: int = 0,
    ) -> Group:
        """Add a row.

        Args:
            row: the row.
            context: the context of the message for aggregated expressions; it has to be the same
                when the row is removed.
            origin: its context for other expressions, if that has more data.
            sequence: its sequence among all rows, if they do not arrive in order.

        Returns:
            The group of the row.
        """
        group = self._ensure_group(row)
        group.row_count += 1
        group.set_latest_row(row, context if origin is None else origin, sequence)
        values = self._projection.compute_arguments(row, context)
        for spec, accumulator in zip(
            self._projection.accumulator_specs, group.accumulators, strict=True
        ):
            accumulator.add(values[spec.argument_index])
        return group

    def remove_row(self, row: ProjectionRow, context: MessageContext = NO_CONTEXT) -> Group:
        """Remove a row that was added.

        Returns:
            The group of the row. It exists until `remove_if_empty`, for other rows may be added to
            it.
        """
        group = self._groups[self._projection.group_key(row)]
        group.row_count -= 1
        values = self._projection.compute_arguments(row, context)
        for spec, accumulator in zip(
            self._projection.accumulator_specs, group.accumulators, strict=True
        ):
            accumulator.remove(values[spec.argument_index])
        return group

    def replace_row(
        self,
        before: ProjectionRow,
        after: ProjectionRow,
        before_context: MessageContext = NO_CONTEXT,
        after_context: MessageContext = NO_CONTEXT,
        origin: MessageContext | None = None,
        sequence: int = 0,
    ) -> tuple[Group, ...]:
        """Replace a row; see `add_row` and `remove_row`.

        Returns:
            The changed groups: that of the old row, then that of the new one if it differs.
        """
        projection = self._projection
        key = projection.group_key(after)
        if key != projection.group_key(before):
            old_group = self.remove_row(before, before_context)
            return old_group, self.add_row(after, after_context, origin, sequence)
        group = self._groups[key]
        group.set_latest_row(after, after_context if origin is None else origin, sequence)
        old = projection.compute_arguments(before, before_context)
        new = projection.compute_arguments(after, after_context)
        accumulators = group.accumulators
        for index, (_, argument) in enumerate(projection.accumulator_specs):
            old_value, new_value = old[argument], new[argument]
            if old_value is not new_value and (
                type(old_value) is not type(new_value) or old_value != new_value
            ):
                accumulators[index].remove(old_value)
                accumulators[index].add(new_value)
        return (group,)

    def remove_if_empty(self, group: Group) -> bool:
        """Remove a group if it has no rows left.

        Returns:
            True if the group still exists.
        """
        if group.row_count:
            return True
        self._groups.pop(group.key, None)
        return False

    def compute_fields(self, group: Group) -> list[FieldValue]:
        """Return the projected fields of a group."""
        return self._projection.compute_fields(
            group.latest_row, group.accumulators, group.latest_context
        )

    def _ensure_group(self, row: ProjectionRow) -> Group:
        key = self._projection.group_key(row)
        group = self._groups.get(key)
        if group is None:
            accumulators = [kept.make() for kept in self._projection.accumulator_specs]
            group = Group(key, self._key_hash.hash_values(key), accumulators, row)
            self._groups[key] = group
        return group
