"""`spark.read.format("amps")`: the records of a SOW topic, as one query or as several at once.

A read is divided by a value that the server has for every record: a hash of its key, or of its
topic. Each part is a query of its own and sees the topic at the time when it begins. Only a single
query sees one state of the topic, or several that ask for the same past time (option `bookmark`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from amperage.client import EPOCH, NOW, CommandError
from amperage.client.block_client import BlockClient
from amperage.client.blocks import MessageBlock
from amperage.wire.bookmarks import is_now
from pipeline.amps.connection import connected
from pipeline.amps.options import AmpsOptions
from pipeline.amps.selection import command_options
from pipeline.error_reports import brief_errors
from pipeline.errors import option_error
from pipeline.message_columns import gathered
from pipeline.pushdown import push_down
from pipeline.rows import RowFormat
from pipeline.tolerance import PERMISSIVE
from pipeline.workers import freeze_objects

ROWS_PER_BATCH = 10_000

_HASHES = {"key": "SOW_KEY_HASH()", "topic": "CRC32(TOPIC_NAME())"}


class AmpsPartition(InputPartition):
    """One of the queries of a read.

    Args:
        filter_: the filter that selects its records; None for all.
    """

    def __init__(self, filter_: str | None) -> None:
        super().__init__(filter_)
        self.filter = filter_


@brief_errors
class AmpsReader(DataSourceReader):
    """Reads the records of a topic.

    Args:
        options: the options of the read.
        schema: the schema of the rows.

    Raises:
        PipelineError: the messages of the topic cannot have this schema.
    """

    def __init__(self, options: AmpsOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        fields = RowFormat(schema, options.message_type, options.tolerance).fields
        self._pushed = push_down(options.where, fields).filter if _can_filter(options) else None

    def partitions(self) -> list[InputPartition]:
        """Divide the read, and check that the server accepts the query.

        Raises:
            PipelineError: it does not.
        """
        with connected(self._options, "plan") as client:
            _require_history(client, self._options)
            for _ in self._query(client, None, 1):
                pass
        count = self._options.partitions
        if count == 1:
            return [AmpsPartition(None)]
        value = _HASHES[self._options.partition_by]
        parts = [f"{value} % {count} = {number}" for number in range(count)]
        return [
            AmpsPartition(f"({parts[0]} OR {value} IS NULL)"),
            *[AmpsPartition(part) for part in parts[1:]],
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Execute the query of a partition and yield its records in batches."""
        assert isinstance(partition, AmpsPartition)  # noqa: S101 - see partitions
        freeze_objects()
        rows = RowFormat(self._schema, self._options.message_type, self._options.tolerance)
        with connected(self._options, "read", patient=True) as client:
            blocks = self._query(client, partition.filter, self._options.top_n)
            yield from map(rows.batch, gathered(blocks, ROWS_PER_BATCH))

    def _query(
        self, client: BlockClient, part: str | None, top_n: int | None
    ) -> Iterator[list[MessageBlock]]:
        options = self._options
        tests = [test for test in (options.filter, self._pushed, part) if test is not None]
        if len(tests) > 1:  # a single one is sent verbatim, because errors show a position in it
            tests = [f"({test})" for test in tests]
        rows = RowFormat(self._schema, options.message_type, options.tolerance)
        stream = client.query_blocks(
            options.read_topic,
            filter=" AND ".join(tests) or None,
            options=command_options(options, rows),
            bookmark=options.bookmark,
            order_by=options.orderby,
            batch_size=options.batch_size,
            top_n=top_n,
        )
        while blocks := stream.blocks(options.timeout):
            yield blocks


def _require_history(client: BlockClient, options: AmpsOptions) -> None:
    """Check that the topic has past states, if one is requested.

    The server ignores bookmarks of queries of topics without History, and refuses ranges of the
    others. Rows of the present would be taken for those of the past.

    Raises:
        PipelineError: the topic has no past states.
    """
    if options.bookmark is None or is_now(options.bookmark):
        return
    try:
        for _ in client.sow(options.read_topic, bookmark=f"[{EPOCH}:{NOW}]", top_n=1):
            pass
    except CommandError as error:
        if error.reason != "invalid bookmark":
            raise
        return
    raise option_error(
        "topic",
        options.read_topic,
        f"no state as of {options.bookmark}: the topic has no History in the configuration; for a"
        " topic in the transaction log, read its messages by a range such as"
        f" bookmark=[{EPOCH}:{options.bookmark}]",
    )


def _can_filter(options: AmpsOptions) -> bool:
    """Return whether the server can apply Spark's filters.

    With `top_n`, Spark's filters apply to the records that remain. In permissive mode, the fields
    of a message that does not fit are NULL to Spark alone.
    """
    is_first = options.top_n is None and options.tolerance.mode != PERMISSIVE
    return is_first and options.message_type == "json"
