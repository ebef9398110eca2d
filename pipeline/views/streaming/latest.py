"""The first stage: converts the events of a topic to changes of rows.

The state has the row of each record, so that an update removes the old row from joins and
groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pipeline.views.definition import ViewDefinition
from pipeline.views.groups import row_reader
from pipeline.views.records import records_in
from pipeline.views.rows import RowPart, part_reader
from pipeline.views.streaming import changes
from pipeline.views.streaming.changes import JoinedRow, RoutingKeys, StreamChange, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from server.storage.sow.records import Record

_READ: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("record", pa.string()),
        ("key", pa.string()),
        ("row", pa.binary()),
        ("sequence", pa.int64()),
        ("timestamp", pa.int64()),
        ("expires", pa.int64()),
    ]
)
_READ_SCHEMA: Final = (
    "topic string, record string, key string, row binary, sequence long, timestamp long,"
    " expires long"
)
_MICRO: Final = 1_000_000
"""Nanoseconds in a millisecond."""


def latest_rows(view: ViewDefinition, place: int, events: DataFrame, *, expire: bool) -> DataFrame:
    """Return the first stage.

    Args:
        view: the view.
        place: the index of the topic in the view.
        events: the events of the topic's records; see `events`.
        expire: whether records may have a lifetime.

    Returns:
        Changes; see `changes`.
    """
    read = events.mapInArrow(PartExtractor(view, place), _READ_SCHEMA)
    return read.groupBy("topic", "record").transformWithState(
        LatestProcessor(is_right=place > 0),
        changes.SCHEMA,
        "Append",
        "ProcessingTime" if expire else "None",
    )


class PartExtractor:
    """Reads the parts of rows from bodies, in the workers that have the events."""

    def __init__(self, view: ViewDefinition, topic_index: int) -> None:
        self._view = view
        self._topic_index = topic_index

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read batches of events."""
        read = self._row_reader()
        for batch in batches:
            removals = batch.column("is_gone").to_pylist()
            keyed = [
                (None, None) if is_gone else read(record)
                for record, is_gone in zip(records_in([batch]), removals, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column("topic"),
                    batch.column("key"),
                    pa.array([key for key, _ in keyed], pa.string()),
                    pa.array([row for _, row in keyed], pa.binary()),
                    batch.column("sequence"),
                    batch.column("timestamp"),
                    batch.column("expires"),
                ],
                schema=_READ,
            )

    def _row_reader(self) -> Callable[[Record], tuple[str | None, bytes | None]]:
        """Return a function that gives the key and the row of a record; no row if it has none."""
        view, topic_index = self._view, self._topic_index
        keys = RoutingKeys(view)
        if len(view.compiled.topics) == 1:
            read_row = row_reader(view)
            projection = view.compiled.projection
            asks = projection.arguments_need_context or projection.fields_need_context

            def whole(record: Record) -> tuple[str | None, bytes | None]:
                row_and_context = read_row(record)
                if row_and_context is None:
                    return None, None
                row = JoinedRow(
                    (RowPart(row_and_context[0], ()),), row_and_context[1] if asks else None
                )
                packed = pack(row)
                return keys.key_of_row(row, packed), packed

            return whole
        read_part = part_reader(view, topic_index)

        def first(record: Record) -> tuple[str | None, bytes | None]:
            row = JoinedRow((read_part(record),))
            packed = pack(row)
            return keys.key_of_row(row, packed), packed

        def further(record: Record) -> tuple[str | None, bytes | None]:
            part = read_part(record)
            key = keys.key_of_part(topic_index, part)
            return key, None if key is None else pack(part)

        return further if topic_index else first


class LatestProcessor(StatefulProcessor):
    """Keeps the row of each record, and yields its changes."""

    def __init__(self, *, is_right: bool) -> None:
        self._is_right = is_right

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See `StatefulProcessor.init`."""
        self._handle = handle
        self._row_state = handle.getValueState("row", "key string, row binary, expires long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str, str],  # noqa: ARG002 - the record, whose state this is
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        """Apply the last event of a micro-batch."""
        last = max(rows, key=lambda event: event.sequence)
        before = self._row_state.get()
        if before is not None:
            row = bytes(before[1])
            removal = StreamChange(
                before[0], self._is_right, row, -1, last.sequence, last.timestamp
            )
            yield removal.to_spark_row()
            if before[2] is not None:
                self._handle.deleteTimer(before[2])
        expires = last.expires
        is_over = expires is not None and expires <= timerValues.getCurrentProcessingTimeInMs()
        if last.row is None or is_over:
            if before is not None:
                self._row_state.clear()
            return
        row = bytes(last.row)
        self._row_state.update((last.key, row, expires))
        if expires is not None:
            self._handle.registerTimer(expires)
        yield StreamChange(
            last.key, self._is_right, row, 1, last.sequence, last.timestamp
        ).to_spark_row()

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[str, str],  # noqa: ARG002 - the record, whose state this is
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        """Remove the row of an expired record."""
        before = self._row_state.get()
        if before is not None:
            moment = expiredTimerInfo.getExpiryTimeInMs() * _MICRO
            yield StreamChange(
                before[0], self._is_right, bytes(before[1]), -1, 0, moment
            ).to_spark_row()
            self._row_state.clear()

    def close(self) -> None:
        """See `StatefulProcessor.close`."""
