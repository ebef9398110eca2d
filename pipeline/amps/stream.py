"""`spark.readStream.format("amps")`: messages of the transaction log, in its order.

The driver asks the server how much there is, and decides what a micro-batch is (`ahead.py`); the
offset says so in full (`offsets.py`). A small batch travels to its tasks as rows, so that they need
no connections. Any other is read by its tasks, from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import time
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from client import EPOCH, NOW, Client, CommandError, Message
from pipeline.amps.ahead import Ahead
from pipeline.amps.connection import NOT_FOUND, connected
from pipeline.amps.followed import Followed
from pipeline.amps.limits import default_limit, limits_of
from pipeline.amps.offsets import Offset, Range, digest_of, initial, ranges_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.amps.selection import command_options
from pipeline.errors import PipelineError, option_error
from pipeline.rows import RowFormat
from pipeline.workers import settle

_ROWS_A_BATCH: Final = 10_000


class AmpsRange(InputPartition):
    """One task's share of a micro-batch.

    Args:
        range_: which messages.
        rows: the messages as rows, if they are known.
    """

    def __init__(self, range_: Range, rows: pa.RecordBatch | None = None) -> None:
        super().__init__(range_)
        self.range = range_
        self.rows = rows


class AmpsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic, or those that match a regular expression, from the transaction log.

    Args:
        options: what to read.
        schema: as what.

    Raises:
        PipelineError: the schema cannot be had of the topic's messages, or the bookmark is a range.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        if options.bookmark is not None and options.bookmark.strip()[0] in "[(":
            raise option_error("bookmark", options.bookmark, "a stream has a beginning and no end")
        self._options = options
        self._schema = schema
        rows = self._row_format()
        self._command_options: Final = _of_replays(command_options(options, rows) or "", options)
        plan = Ahead if len(options.servers) == 1 else Followed
        self._source: Final[Ahead | Followed] = plan(options, self._command_options)
        self._planned: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a new query begins: at the bookmark given, else with the first message there is."""
        return initial(self._options.bookmark or EPOCH)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How large a micro-batch may be."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to where the log ends now, and no further."""
        self._source.stop_at_end()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; at its start if there is nothing.

        Raises:
            PipelineError: the server refuses, or has been away for too long.
        """
        end = self._source.latest(start, limits_of(self._options, limit))
        if end is not start:
            self._planned = end
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the log ends, and how much of the topic is behind the last micro-batch."""
        behind = self._source.behind()
        if behind is None:
            return None
        return {
            "bookmark": behind.end,
            "rows_behind": behind.rows,
            "bytes_behind": behind.size,
            "seconds_behind": round(max(time() - behind.oldest, 0.0), 3) if behind.rows else 0.0,
        }

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a micro-batch, the same for the same offsets."""
        if start == end:
            return []
        ranges = ranges_of(end)
        known = self._source.messages(end) if end == self._planned else None
        if known is None or [len(some) for some in known] != [one.rows for one in ranges]:
            return [AmpsRange(one) for one in ranges]  # whose tasks say what is missing
        rows = self._row_format()
        return [
            AmpsRange(one, rows.batch(messages))
            for one, messages in zip(ranges, known, strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range.

        Raises:
            PipelineError: the log does not have all its messages any more.
        """
        assert isinstance(partition, AmpsRange)  # noqa: S101 - see partitions
        settle()
        if partition.rows is not None:
            yield partition.rows
            return
        rows = self._row_format()
        found: list[str] = []
        for messages in self._messages(partition.range):
            found += [message.bookmark or "" for message in messages]
            yield rows.batch(messages)
        if self._options.fail_on_data_loss:
            _check(partition.range, found)

    def stop(self) -> None:
        """Close the connection."""
        self._source.close()

    def _row_format(self) -> RowFormat:
        options = self._options
        return RowFormat(self._schema, options.message_type, options.tolerance)

    def _messages(self, range_: Range) -> Iterator[list[Message]]:
        options = self._options
        with connected(options, "read", patient=True, place=range_.begin) as client:
            if not (options.fail_on_data_loss or _has(client, options, range_.end)):
                return
            span, most = range_.span, None
            if options.fail_on_data_loss and range_.digest is not None:
                # At another server, the last of these messages need not come last.
                span, most = f"[{range_.begin}:{NOW}]", range_.rows
            waiting: list[Message] = []
            for messages in replayed(
                client, options, span, command_options=self._command_options, top_n=most
            ):
                waiting += messages
                if len(waiting) >= _ROWS_A_BATCH:
                    yield waiting
                    waiting = []
            if waiting:
                yield waiting


def _check(range_: Range, found: Sequence[str]) -> None:
    """See that the messages of a range are those that they were, in whichever order.

    Args:
        range_: the range.
        found: the bookmarks of the messages that have come.

    Raises:
        PipelineError: they are not.
    """
    if len(found) != range_.rows:
        raise PipelineError(
            f"the transaction log has {len(found)} of the {range_.rows} messages of"
            f" {range_.span}: journal files have been removed, or the options topic or filter have"
            " changed since the checkpoint was made; the option fail_on_data_loss=false goes on"
            " with what there is"
        )
    if range_.digest not in (None, digest_of(found)):
        raise PipelineError(
            f"the instance that is there now has other messages behind the first of {range_.span}"
            " than the one where this micro-batch was begun: several publishers were connected to"
            " different instances. Repeat it where it was begun (the first of the option server"
            " that can be reached is taken), or here, with what there is, with the option"
            " fail_on_data_loss=false"
        )


def _has(client: Client, options: AmpsOptions, bookmark: str) -> bool:
    """Whether the log has a message still.

    Journals go from the first on, so that without its last message nothing of a range is left. The
    server would wait for that message to come, and send all others meanwhile.
    """
    span = f"[{bookmark}:{bookmark}]"
    try:
        for _ in replayed(client, options, span, command_options="bookmark_not_found=fail"):
            pass
    except CommandError as error:
        if error.reason != NOT_FOUND:
            raise
        return False
    return True


def _of_replays(chosen: str, options: AmpsOptions) -> str:
    """Say what else the server is to do.

    A bookmark that is not in the log it is to refuse, instead of beginning elsewhere; or to begin
    with the first entry there is. Of several servers, each is to give only what all of them have:
    the query may go on at another one.
    """
    parts = [chosen] if chosen else []
    if "bookmark_not_found" not in chosen:
        parts.append(f"bookmark_not_found={'fail' if options.fail_on_data_loss else 'epoch'}")
    if len(options.servers) > 1 and "fully_durable" not in chosen:
        parts.append("fully_durable")
    return ",".join(parts)
