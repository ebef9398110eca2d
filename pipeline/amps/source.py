"""The data source `amps`, with its readers and writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from amperage.client import EPOCH, NOW, InvalidTopicError, Message
from pipeline.amps.batch import AmpsReader
from pipeline.amps.connection import connected
from pipeline.amps.log_range import LogRangeReader, is_range
from pipeline.amps.options import AmpsOptions, read_options
from pipeline.amps.queue_stream import AmpsQueueStreamReader
from pipeline.amps.replay import replayed
from pipeline.amps.stream import AmpsStreamReader
from pipeline.amps.writer import AmpsStreamWriter, AmpsWriter
from pipeline.error_reports import brief_errors
from pipeline.errors import PipelineError, option_error
from pipeline.inference import TYPED_MODULES, decoder, infer_schema
from pipeline.rows import default_schema
from pipeline.unsupported_stream import stream_reader


@brief_errors
class AmpsDataSource(DataSource):
    """Topics of a server."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given_options = {str(name).lower(): text for name, text in options.items()}

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "amps"

    def schema(self) -> StructType:
        """Return the default columns: bodies, or the fields of a sample."""
        options = read_options(self._given_options, "read", "readStream")
        if options.sample is None:
            return default_schema(options.message_type, has_deletions=options.has_deletions)
        kind = options.message_type
        decode = decoder(kind, options.tolerance.environment)
        if kind is None or decode is None:
            *others, last = TYPED_MODULES
            problem = f"schemas are inferred from {', '.join(others)} and {last} only"
            raise option_error("sample", options.sample, problem)
        name = "JSON" if kind == "json" else kind
        return infer_schema((message.body for message in _sample(options)), decode, name)

    def reader(self, schema: StructType) -> AmpsReader | LogRangeReader:
        """Return the batch reader of a topic: of its records, or of a part of the log."""
        options = read_options(self._given_options, "read")
        return (LogRangeReader if is_range(options.bookmark) else AmpsReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the stream reader of a topic."""

        def make() -> DataSourceStreamReader:
            options = read_options(self._given_options, "readStream")
            reader = AmpsQueueStreamReader if options.consume else AmpsStreamReader
            return reader(options, schema)

        return stream_reader(make)

    def writer(self, schema: StructType, overwrite: bool) -> AmpsWriter:
        """Return the writer of a DataFrame."""
        if overwrite:
            raise PipelineError(
                "mode overwrite: published messages cannot be removed; use mode append, and delete"
                " records with the option command=sow_delete"
            )
        return AmpsWriter(read_options(self._given_options, "write"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> AmpsStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a stream."""
        if overwrite:
            raise PipelineError(
                "output mode complete: published messages cannot be removed; use append (Spark has"
                " no mode update for sources in Python), or foreachBatch with a df.write"
            )
        return AmpsStreamWriter(read_options(self._given_options, "writeStream"), schema)


def _sample(options: AmpsOptions) -> Iterator[Message]:
    """Yield some records; for a topic without SOW, messages of the transaction log."""
    topic, max_rows = options.read_topic, options.sample
    with connected(options, "sample") as client:
        try:
            yield from client.sow(topic, filter=options.filter, top_n=max_rows)
        except InvalidTopicError:
            for messages in replayed(client, options, f"[{EPOCH}:{NOW}]", top_n=max_rows):
                yield from messages
