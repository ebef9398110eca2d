"""The stages in between: each joins one topic to the rows so far, as a left outer join.

Theory of operation. The state has both sides by their join fields: the rows from the left, and the
parts that the topic adds, each with its count. Removals and additions of a micro-batch on either
side cause removals and additions of rows:

    removed rows on the left      are removed with every part that existed; with NULLs if none did
    removed and added parts       remove and add a row for each row that stays on the left
    the first part added          replaces NULLs; when the last part is removed, they return
    added rows on the left        are added with every part that exists now

Rows that cannot match, because a field is NULL, are not kept: they pass with NULLs.

Source: AMPS User Guide, Multiple Topic Aggregation: Join.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pipeline.views.definition import ViewDefinition
from pipeline.views.streaming import changes
from pipeline.views.streaming.changes import (
    NOTHING,
    RoutingKeys,
    StreamChange,
    in_order,
    pack,
    unpack,
    unpack_part,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import (
        MapState,
        StatefulProcessorHandle,
        TimerValues,
    )


def join_rows(view: ViewDefinition, left: DataFrame, right: DataFrame) -> DataFrame:
    """Join a topic.

    Args:
        view: the view.
        left: changes of the rows so far, see `changes`.
        right: changes of the topic's parts.

    Returns:
        Changes of rows with one more part.
    """
    return (
        left.unionByName(right)
        .groupBy("key")
        .transformWithState(JoinProcessor(view), changes.SCHEMA, "Append", "None")
    )


class JoinProcessor(StatefulProcessor):
    """Keeps the state of both sides."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See `StatefulProcessor.init`."""
        self._keys = RoutingKeys(self._view)
        self._left_state = handle.getMapState("left", "row binary", "count long")
        self._right_state = handle.getMapState("right", "row binary", "count long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Apply all changes of a micro-batch with the same join fields."""
        together = in_order(rows)
        left = [change for change in together if not change.is_right]
        if key[0].startswith(NOTHING):
            for change in left:
                yield self._extended_change(change.row, None, change)
            return
        right = [change for change in together if change.is_right]
        before = _counts(self._right_state)
        after = _changed(before, right)
        yield from self._left_changes([change for change in left if change.times < 0], before)
        if right:
            yield from self._right_changes(left, right, before, after)
        yield from self._left_changes([change for change in left if change.times > 0], after)
        _store(self._right_state, right, before)
        _store(self._left_state, left)

    def close(self) -> None:
        """See `StatefulProcessor.close`."""

    def _left_changes(
        self, left: Iterable[StreamChange], parts: Mapping[bytes, int]
    ) -> Iterator[Row]:
        """Yield changes for rows added or removed on the left, with the existing parts."""
        for change in left:
            if not parts:
                yield self._extended_change(change.row, None, change)
            for part, times in parts.items():
                yield self._extended_change(change.row, part, change, times)

    def _right_changes(
        self,
        left: Sequence[StreamChange],
        right: Sequence[StreamChange],
        before: Mapping[bytes, int],
        after: Mapping[bytes, int],
    ) -> Iterator[Row]:
        """Yield changes for parts added or removed, for all rows that stay on the left."""
        stay = _changed(_counts(self._left_state), [change for change in left if change.times < 0])
        for row, times in stay.items():
            if not before and after:
                yield self._extended_change(row, None, right[0], -times)
            for change in right:
                yield self._extended_change(row, change.row, change, times)
            if before and not after:
                yield self._extended_change(row, None, right[-1]._replace(times=1), times)

    def _extended_change(
        self, row: bytes, part: bytes | None, cause: StreamChange, times: int = 1
    ) -> Row:
        """Return the change of a row with a part appended."""
        so_far = unpack(row)
        added = None if part is None else unpack_part(part)
        grown = so_far._replace(parts=(*so_far.parts, added))
        packed = pack(grown)
        change = cause._replace(
            key=self._keys.key_of_row(grown, packed),
            is_right=False,
            row=packed,
            times=cause.times * times,
        )
        return change.to_spark_row()


def _counts(side: MapState) -> dict[bytes, int]:
    return {bytes(row): count for (row,), (count,) in side.iterator()}


def _changed(counts: Mapping[bytes, int], changes: Iterable[StreamChange]) -> dict[bytes, int]:
    changed = Counter(counts)
    for change in changes:
        changed[change.row] += change.times
    return {row: count for row, count in changed.items() if count}


def _store(
    side: MapState, changes: Iterable[StreamChange], counts: Mapping[bytes, int] | None = None
) -> None:
    """Store additions, and delete removals.

    Args:
        side: the state of a side.
        changes: the changes.
        counts: the counts in the state, if known.
    """
    for row, count in _changed({}, changes).items():
        if counts is None:
            stored_count = side.getValue((row,))
            kept_count = 0 if stored_count is None else stored_count[0]
        else:
            kept_count = counts.get(row, 0)
        if kept_count + count:
            side.updateValue((row,), (kept_count + count,))
        else:
            side.removeKey((row,))
