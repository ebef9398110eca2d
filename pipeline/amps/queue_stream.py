"""`spark.readStream.format("amps")` with `consume=true`: consumes the messages of a queue.

The offset of a micro-batch names its messages, by their bookmarks. So an offset that Spark has
committed identifies one batch: if the batch is repeated, its tasks read these messages from the
transaction log, where they do not change. Its rows are the same even if the queue has delivered the
messages to another consumer meanwhile.

Spark asks for the next offset after committing the previous batch. So that is when the messages of
that batch are acknowledged, before any others are taken. A message that is delivered once more
belongs to that batch, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from amperage.client import Message
from pipeline.amps.connection import connected
from pipeline.amps.consumer import QueueConsumer, reread_message
from pipeline.amps.options import AmpsOptions
from pipeline.amps.selection import command_options
from pipeline.error_reports import brief_errors
from pipeline.errors import PipelineError, option_error
from pipeline.rows import RowFormat
from pipeline.workers import freeze_objects

QueueOffset: TypeAlias = dict[str, Any]

_MESSAGES: Final = "messages"
"""The name of the bookmarks in an offset."""


class QueuePartition(InputPartition):
    """One task's part of a micro-batch.

    Args:
        bookmarks: the bookmarks of the messages.
        rows: the messages as rows, if known.
    """

    def __init__(self, bookmarks: list[str], rows: pa.RecordBatch | None = None) -> None:
        super().__init__(bookmarks)
        self.bookmarks = bookmarks
        self.rows = rows


@brief_errors
class AmpsQueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue.

    Args:
        options: the options of the read.
        schema: the schema of the rows.

    Raises:
        PipelineError: the messages of the queue cannot have this schema, or a bookmark is given.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        if options.bookmark is not None:
            raise option_error(
                "bookmark",
                options.bookmark,
                "a queue begins with its oldest message (consume=true)",
            )
        self._options = options
        self._schema = schema
        self._command_options = command_options(options, self._row_format())
        self._consumer: QueueConsumer | None = None  # on the driver only
        self._taken_batch: tuple[list[str], list[Message]] | None = None
        self._stops_when_empty = False

    def initialOffset(self) -> QueueOffset:  # noqa: N802 - Spark's name
        """Return the offset of a new query: no message has been taken."""
        return {_MESSAGES: []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch."""
        max_rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End when the queue is empty."""
        self._stops_when_empty = True

    def latestOffset(self, start: QueueOffset, limit: ReadLimit) -> QueueOffset:  # noqa: N802 - Spark's name
        """Acknowledge the messages of the last micro-batch, and return those of the next one.

        Raises:
            PipelineError: the server refuses, or has been unavailable for too long.
        """
        done = start[_MESSAGES]
        if self._taken_batch is not None and self._taken_batch[0] != done:
            return {_MESSAGES: self._taken_batch[0]}  # Spark has not committed it yet
        if self._consumer is None:
            self._consumer = QueueConsumer(self._options, self._command_options)
        self._consumer.acknowledge(done)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        messages = self._consumer.take_messages(max_rows, done, waits=self._stops_when_empty)
        if not messages:
            return start
        self._taken_batch = [message.bookmark or "" for message in messages], messages
        return {_MESSAGES: self._taken_batch[0]}

    def partitions(self, start: QueueOffset, end: QueueOffset) -> list[InputPartition]:
        """Return the tasks of a micro-batch, the same for the same offsets."""
        bookmarks = end[_MESSAGES]
        if start == end:
            return []
        is_seen = self._taken_batch is not None and self._taken_batch[0] == bookmarks
        messages = self._taken_batch[1] if self._taken_batch is not None and is_seen else []
        rows = self._row_format()
        count = min(self._options.partitions, len(bookmarks))
        cuts = [len(bookmarks) * number // count for number in range(count + 1)]
        return [
            QueuePartition(
                bookmarks[begin:stop], rows.batch(messages[begin:stop]) if is_seen else None
            )
            for begin, stop in pairwise(cuts)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some messages.

        Raises:
            PipelineError: the log does not have all of them any more.
        """
        assert isinstance(partition, QueuePartition)  # noqa: S101 - see partitions
        freeze_objects()
        if partition.rows is not None:
            yield partition.rows
            return
        options = self._options
        messages: list[Message] = []
        with connected(options, "read", patient=True) as client:
            for bookmark in partition.bookmarks:
                message = reread_message(client, options, self._command_options, bookmark)
                if message is not None:
                    messages.append(message)
                elif options.fail_on_data_loss:
                    raise PipelineError(
                        f"the transaction log does not contain the message {bookmark} of"
                        f" {options.read_topic!r}, which belongs to a repeated micro-batch:"
                        " journal files have been removed, or the option filter has changed; set"
                        " the option fail_on_data_loss=false to continue without it"
                    )
        yield self._row_format().batch(messages)

    def stop(self) -> None:
        """Return all unacknowledged messages to the queue."""
        if self._consumer is not None:
            self._consumer.close()

    def _row_format(self) -> RowFormat:
        options = self._options
        return RowFormat(self._schema, options.message_type, options.tolerance)
