"""`spark.read.format("amps")` with a range of bookmarks: a part of the transaction log, once.

This needs no SOW, only a topic in the transaction log. The end of the range is fixed when the read
is planned, so that all tasks read the same part of the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.amps.connection import connected
from pipeline.amps.log_measure import measure
from pipeline.amps.offsets import MessageRange
from pipeline.amps.options import AmpsOptions
from pipeline.amps.ranges import AmpsRange, RangeReader
from pipeline.error_reports import brief_errors
from pipeline.errors import PipelineError, option_error

_OF_RECORDS = {"orderby": None, "top_n": None, "partition_by": "key"}
"""Options that are for records only, with their defaults."""


def is_range(bookmark: str | None) -> bool:
    """Return whether a bookmark is a range."""
    return bookmark is not None and bookmark.strip().startswith(("[", "("))


@brief_errors
class LogRangeReader(DataSourceReader):
    """Reads the messages of a part of the log.

    Args:
        options: the options of the read.
        schema: the schema of the rows.

    Raises:
        PipelineError: an option is for records, or the messages cannot have this schema.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        for name, default in _OF_RECORDS.items():
            if (value := getattr(options, name)) != default:
                raise option_error(
                    name, value, "it is for records only, and the bookmark is a range"
                )
        self._options = options
        self._ranges = RangeReader(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Divide the part into ranges with about the same number of messages.

        Raises:
            PipelineError: the server refuses, or the log does not go back that far.
        """
        options, rows_by_span = self._options, dict[str, int]()
        span = (options.bookmark or "").strip()
        with connected(options, "plan") as client:
            while True:
                measured = measure(
                    client,
                    options,
                    span,
                    command_options=self._ranges.command_options,
                    parts=options.partitions,
                )
                if measured.lost_text:
                    raise PipelineError(
                        f"option bookmark={options.bookmark!r}: the transaction log does not reach"
                        f" back to its start: {measured.lost_text}; use a later start, or read"
                        " archived journals with the format amps-journal"
                    )
                rows_by_span |= measured.ranges() if measured.rows else {}
                if measured.is_whole:
                    break
                span = f"({measured.end}:{span.partition(':')[2]}"
        if not rows_by_span:  # Spark would start a task all the same, without a partition
            return [AmpsRange(MessageRange(span, 0), self._ranges.row_format().batch(()))]
        return [AmpsRange(MessageRange(span, rows)) for span, rows in rows_by_span.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        yield from self._ranges.read(partition)
