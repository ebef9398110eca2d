"""Parts of the transaction log as rows, which tasks read for streams and for batch reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from amperage.client import NOW, Client, CommandError
from pipeline.amps.connection import NOT_FOUND, connected, data_loss
from pipeline.amps.offsets import MessageRange, digest_of
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import read_log_blocks, replayed
from pipeline.amps.selection import command_options
from pipeline.errors import DataLossError, option_error
from pipeline.message_columns import MessageColumns, gathered
from pipeline.rows import RowFormat
from pipeline.workers import freeze_objects

_BATCH_SIZE: Final = 10_000
_OTHER_MESSAGES: Final = ("conflation", "rate", "live", "pause")
"""Options of replays that send other messages than the log has, or never end."""


class AmpsRange(InputPartition):
    """One task's part of a range of the log.

    Args:
        range_: the range of messages.
        rows: the messages as rows, if known.
    """

    def __init__(self, range_: MessageRange, rows: pa.RecordBatch | None = None) -> None:
        super().__init__(range_)
        self.range = range_
        self.rows = rows


class RangeReader:
    """Reads parts of the log.

    Args:
        options: the options of the read.
        schema: the schema of the rows.

    Attributes:
        command_options: the options field of replays.

    Raises:
        PipelineError: the messages of the topic cannot have this schema.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self.command_options: Final = _of_replays(
            command_options(options, self.row_format()) or "", options
        )

    def row_format(self) -> RowFormat:
        """Return the converter from messages to rows."""
        options = self._options
        return RowFormat(
            self._schema,
            options.message_type,
            options.tolerance,
            has_deletions=options.has_deletions,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part.

        Raises:
            PipelineError: the log does not have all its messages any more.
        """
        assert isinstance(partition, AmpsRange)  # noqa: S101 - nothing else is handed out
        freeze_objects()
        if partition.rows is not None:
            yield partition.rows
            return
        range_, rows = partition.range, self.row_format()
        bookmarks: list[str] = []
        count = 0
        for arrived in self._read_columns(range_):
            count += len(arrived)
            if range_.digest is not None:
                bookmarks += (
                    bookmark or "" for bookmark in arrived.header_column("bookmark").to_pylist()
                )
            yield rows.batch(arrived)
        if self._options.fail_on_data_loss:
            _check(range_, count, bookmarks)

    def _read_columns(self, range_: MessageRange) -> Iterator[MessageColumns]:
        options = self._options
        with connected(options, "read", patient=True, place=range_.begin) as client:
            is_compared = options.fail_on_data_loss and range_.digest is not None
            if not (is_compared or _has(client, options, range_.end)):
                if options.fail_on_data_loss:
                    raise data_loss(options, range_.end)
                return
            span, top_n = range_.span, None
            if is_compared:
                # At another server, the last of these messages may have another place.
                span, top_n = f"[{range_.begin}:{NOW}]", range_.rows
            blocks = read_log_blocks(
                client, options, span, command_options=self.command_options, top_n=top_n
            )
            yield from gathered(blocks, _BATCH_SIZE)


def _check(range_: MessageRange, count: int, bookmarks: Sequence[str]) -> None:
    """Check that a range has the messages of its micro-batch, in any order.

    Args:
        range_: the range.
        count: the number of messages read.
        bookmarks: their bookmarks, if the range has a digest.

    Raises:
        PipelineError: it has not.
    """
    if count != range_.rows:
        raise DataLossError(
            f"the transaction log has {count} of the {range_.rows} messages of"
            f" {range_.span}: journal files have been removed or are damaged, or the options"
            " topic or filter have changed since the checkpoint; set the option"
            " fail_on_data_loss=false to continue with the messages that remain"
        )
    if range_.digest not in (None, digest_of(bookmarks)):
        raise DataLossError(
            f"this instance has other messages after the first of {range_.span} than the instance"
            " where this micro-batch began: several publishers were connected to different"
            " instances. Repeat it where it began (the first reachable one of the option server is"
            " used), or here with the option fail_on_data_loss=false, which reads the messages of"
            " this instance"
        )


def _has(client: Client, options: AmpsOptions, bookmark: str) -> bool:
    """Return whether the log still has a message.

    Journals are removed from the first on, so that nothing of a range is left if its last message
    is gone. The server would wait for that message to arrive, and send all others meanwhile.
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


def _of_replays(text: str, options: AmpsOptions) -> str:
    """Complete the options of a replay.

    The server has to refuse a bookmark that is not in the log, instead of beginning elsewhere;
    without `fail_on_data_loss`, it begins with the first entry. If there are several servers, each
    has to send only messages that all of them have: the query may resume at another one.

    Raises:
        PipelineError: with an option, the server would send other messages than the log has.
    """
    for part in text.split(","):
        if (name := part.strip().partition("=")[0]) in _OTHER_MESSAGES:
            raise option_error(
                "options", options.options, f"{name} is not supported for reads by Spark"
            )
    parts = [text] if text else []
    if options.has_deletions and "deletions" not in text:
        parts.append("deletions")
    if "bookmark_not_found" not in text:
        parts.append(f"bookmark_not_found={'fail' if options.fail_on_data_loss else 'epoch'}")
    if len(options.servers) > 1 and "fully_durable" not in text:
        parts.append("fully_durable")
    return ",".join(parts)
