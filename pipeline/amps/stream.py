"""`spark.readStream.format("amps")`: messages of the transaction log, in its order.

The driver asks the server how much there is, and plans the micro-batches (`batch_planner.py`); an
offset describes its batch completely (`offsets.py`). A small batch is sent to its tasks as rows, so
that they need no connections. The tasks of a larger one read it from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from amperage.client import EPOCH
from pipeline.amps.batch_planner import BatchPlanner
from pipeline.amps.failover_batches import FailoverBatchPlanner
from pipeline.amps.limits import default_limit, limits_of
from pipeline.amps.offsets import LogOffset, initial, ranges_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.ranges import AmpsRange, RangeReader
from pipeline.error_reports import brief_errors
from pipeline.errors import option_error


@brief_errors
class AmpsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic, or the topics that match a regular expression, from the transaction log.

    Args:
        options: the options of the read.
        schema: the schema of the rows.

    Raises:
        PipelineError: the messages cannot have this schema, or the bookmark is a range.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        if options.bookmark is not None and options.bookmark.strip()[0] in "[(":
            raise option_error(
                "bookmark", options.bookmark, "expected a start, as a stream has no end"
            )
        self._options = options
        self._range_reader: Final = RangeReader(options, schema)
        plan = BatchPlanner if len(options.servers) == 1 else FailoverBatchPlanner
        self._planner: Final[BatchPlanner | FailoverBatchPlanner] = plan(
            options, self._range_reader.command_options
        )
        self._planned_offset: LogOffset | None = None

    def initialOffset(self) -> LogOffset:  # noqa: N802 - Spark's name
        """Return the offset of a new query: the given bookmark, or the beginning of the log."""
        return initial(self._options.bookmark or EPOCH)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to the current end of the log, and no further."""
        self._planner.stop_at_end()

    def latestOffset(self, start: LogOffset, limit: ReadLimit) -> LogOffset:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; its start if there is nothing.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        end = self._planner.next_end(start, limits_of(self._options, limit))
        if end is not start:
            self._planned_offset = end
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end of the log, and the amount of messages after the last micro-batch."""
        behind = self._planner.measure_backlog()
        if behind is None:
            return None
        return {
            "bookmark": behind.end,
            "rows_behind": behind.rows,
            "bytes_behind": behind.size,
            "seconds_behind": round(max(time() - behind.oldest_s, 0.0), 3) if behind.rows else 0.0,
        }

    def partitions(self, start: LogOffset, end: LogOffset) -> list[InputPartition]:
        """Return the tasks of a micro-batch, the same for the same offsets."""
        if start == end:
            return []
        ranges = ranges_of(end)
        known = self._planner.small_batch_messages(end) if end == self._planned_offset else None
        if known is None or [len(messages) for messages in known] != [
            range_.rows for range_ in ranges
        ]:
            return [AmpsRange(range_) for range_ in ranges]  # the tasks report missing messages
        rows = self._range_reader.row_format()
        return [
            AmpsRange(range_, rows.batch(messages))
            for range_, messages in zip(ranges, known, strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range.

        Raises:
            PipelineError: the log does not have all its messages any more.
        """
        yield from self._range_reader.read(partition)

    def stop(self) -> None:
        """Close the connection."""
        self._planner.close()
