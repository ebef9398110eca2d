"""The stages in between: each joins one topic to the rows so far, as a left outer join.

Theory of operation. Both sides are kept by the fields that have to be equal: the rows from the
left, and the parts that the topic adds, each with the number of times it is there. Of a
micro-batch, what goes and comes on either side makes rows go and come:

    rows on the left that go      go, with every part that was there; with NULLs if there was none
    parts that go and come        take away, and add, a row for each row that stays on the left
    the first part to come        takes the place of NULLs; when the last one goes, they come back
    rows on the left that come    come, with every part that is there now

Rows that can fit nothing, because a field is NULL, are not kept: they go on with NULLs.

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
    Change,
    Keys,
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


def joined_rows(view: ViewDefinition, left: DataFrame, right: DataFrame) -> DataFrame:
    """Join a topic.

    Args:
        view: the view.
        left: changes of the rows so far, see `changes`.
        right: changes of the topic's parts.

    Returns:
        Changes of rows that have grown by one part.
    """
    return (
        left.unionByName(right)
        .groupBy("key")
        .transformWithState(Join(view), changes.SCHEMA, "Append", "None")
    )


class Join(StatefulProcessor):
    """Keeps both sides."""

    def __init__(self, view: ViewDefinition) -> None:
        self._view = view

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See `StatefulProcessor.init`."""
        self._keys = Keys(self._view)
        self._left = handle.getMapState("left", "row binary", "count long")
        self._right = handle.getMapState("right", "row binary", "count long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Everything of a micro-batch that has the same fields."""
        together = in_order(rows)
        left = [one for one in together if not one.is_right]
        if key[0].startswith(NOTHING):
            for one in left:
                yield self._grown(one.row, None, one)
            return
        right = [one for one in together if one.is_right]
        before = _counts(self._right)
        after = _changed(before, right)
        yield from self._left_changes([one for one in left if one.times < 0], before)
        if right:
            yield from self._right_changes(left, right, before, after)
        yield from self._left_changes([one for one in left if one.times > 0], after)
        _store(self._right, right, before)
        _store(self._left, left)

    def close(self) -> None:
        """See `StatefulProcessor.close`."""

    def _left_changes(self, left: Iterable[Change], parts: Mapping[bytes, int]) -> Iterator[Row]:
        """Rows that come or go on the left, with the parts that are there."""
        for one in left:
            if not parts:
                yield self._grown(one.row, None, one)
            for part, times in parts.items():
                yield self._grown(one.row, part, one, times)

    def _right_changes(
        self,
        left: Sequence[Change],
        right: Sequence[Change],
        before: Mapping[bytes, int],
        after: Mapping[bytes, int],
    ) -> Iterator[Row]:
        """Parts that come or go, for all rows that stay on the left."""
        stay = _changed(_counts(self._left), [one for one in left if one.times < 0])
        for row, times in stay.items():
            if not before and after:
                yield self._grown(row, None, right[0], -times)
            for one in right:
                yield self._grown(row, one.row, one, times)
            if before and not after:
                yield self._grown(row, None, right[-1]._replace(times=1), times)

    def _grown(self, row: bytes, part: bytes | None, cause: Change, times: int = 1) -> Row:
        """A row that has grown by a part."""
        so_far = unpack(row)
        added = None if part is None else unpack_part(part)
        grown = so_far._replace(parts=(*so_far.parts, added))
        packed = pack(grown)
        change = cause._replace(
            key=self._keys.of_row(grown, packed),
            is_right=False,
            row=packed,
            times=cause.times * times,
        )
        return change.spark()


def _counts(side: MapState) -> dict[bytes, int]:
    return {bytes(row): count for (row,), (count,) in side.iterator()}


def _changed(counts: Mapping[bytes, int], some: Iterable[Change]) -> dict[bytes, int]:
    changed = Counter(counts)
    for one in some:
        changed[one.row] += one.times
    return {row: count for row, count in changed.items() if count}


def _store(
    side: MapState, some: Iterable[Change], counts: Mapping[bytes, int] | None = None
) -> None:
    """Keep what has come, and forget what has gone.

    Args:
        side: what is kept.
        some: the changes.
        counts: what is there, if that is known.
    """
    for row, count in _changed({}, some).items():
        if counts is None:
            found = side.getValue((row,))
            kept = 0 if found is None else found[0]
        else:
            kept = counts.get(row, 0)
        if kept + count:
            side.updateValue((row,), (kept + count,))
        else:
            side.removeKey((row,))
