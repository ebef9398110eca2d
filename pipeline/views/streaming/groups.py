"""The last stage: converts changes of rows to events of the view's records.

The state of a group is its accumulators, which are the server's, and its record. A group whose
record does not change yields no event.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pipeline.views.definition import ViewDefinition
from pipeline.views.streaming import events
from pipeline.views.streaming.changes import RoutingKeys, in_order, unpack
from server.expressions.message_context import NO_CONTEXT
from server.storage.views.groups import Group, GroupTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues


def group_events(view: ViewDefinition, rows: DataFrame) -> DataFrame:
    """Return the last stage.

    Args:
        view: the view.
        rows: changes of its rows; see `changes`.

    Returns:
        Events of its records; see `events`.
    """
    return rows.groupBy("key").transformWithState(
        GroupProcessor(view), events.SCHEMA, "Append", "None"
    )


class GroupProcessor(StatefulProcessor):
    """Keeps the state of groups."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See `StatefulProcessor.init`."""
        self._keys = RoutingKeys(self._view)
        self._group_state = handle.getValueState("group", "members binary, body binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Apply all changes of a group in a micro-batch."""
        view = self._view
        grouping = GroupTable(view.compiled.projection, view.spec.key_domain)
        stored_group = self._group_state.get()
        before = None if stored_group is None else bytes(stored_group[1])
        if stored_group is not None:
            grouping.restore_group(pickle.loads(stored_group[0]))  # noqa: S301 - made below, in this query or an earlier run
        group: Group | None = None
        sequence = timestamp = 0
        for change in in_order(rows):
            grown = unpack(change.row)
            values = self._keys.row_values(grown)
            context = NO_CONTEXT if grown.context is None else grown.context
            for _ in range(abs(change.times)):
                group = (grouping.add_row if change.times > 0 else grouping.remove_row)(
                    values, context
                )
            sequence, timestamp = max(sequence, change.sequence), max(timestamp, change.timestamp)
        if group is None:
            return
        if not grouping.remove_if_empty(group):
            self._group_state.clear()
            if before is not None:
                yield self._make_event(key[0], before, timestamp, sequence, is_gone=True)
            return
        body = view.message_type.build(grouping.compute_fields(group))
        self._group_state.update((pickle.dumps(group), body))
        if body != before:
            yield self._make_event(key[0], body, timestamp, sequence, is_gone=False)

    def close(self) -> None:
        """See `StatefulProcessor.close`."""

    def _make_event(
        self, key: str, body: bytes, timestamp: int, sequence: int, *, is_gone: bool
    ) -> Row:
        name = self._view.spec.name
        return _EVENT(key, body, name, timestamp, sequence, "", "", is_gone, None)


_EVENT = Row(
    "key",
    "body",
    "topic",
    "timestamp",
    "sequence",
    "correlation_id",
    "bookmark",
    "is_gone",
    "expires",
)
