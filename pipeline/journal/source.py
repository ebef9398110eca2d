"""The data source `format("amps-journal")`: schema, planning, reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from pipeline.error_reports import brief_errors
from pipeline.journal.options import JournalOptions, read_options
from pipeline.journal.partitions import JournalPartition
from pipeline.journal.plan import message_types, plan
from pipeline.journal.reader import JournalPartitionReader
from pipeline.journal.schema import JournalSchema, default_schema
from pipeline.journal.stream import AmpsJournalStreamReader
from pipeline.unsupported_stream import stream_reader


@brief_errors
class AmpsJournalDataSource(DataSource):
    """Journals as a DataFrame."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given_options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "amps-journal"

    def schema(self) -> StructType:
        """Return the default columns."""
        return default_schema(message_types(read_options(self._given_options)))

    def reader(self, schema: StructType) -> AmpsJournalReader:
        """Return the batch reader of journals."""
        return AmpsJournalReader(read_options(self._given_options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the stream reader of journals."""
        return stream_reader(lambda: self._stream_reader(schema))

    def _stream_reader(self, schema: StructType) -> AmpsJournalStreamReader:
        options = read_options(self._given_options)
        return AmpsJournalStreamReader(options, JournalSchema(schema, options.tolerance))


@brief_errors
class AmpsJournalReader(DataSourceReader):
    """Reads journals for one query.

    Args:
        options: the options of the read.
        schema: the columns.

    Raises:
        PipelineError: a column of the schema is not valid.
    """

    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = JournalSchema(schema, options.tolerance)
        self._predicates = self._columns.accept_filters(options.where)

    def partitions(self) -> list[InputPartition]:
        """Plan the partitions to read."""
        partitions = plan(
            self._options,
            [predicate for predicate in self._predicates if not predicate.is_on_field],
        )
        JournalPartitionReader(self._options, self._columns, self._predicates).check(partitions)
        return [*partitions] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        if isinstance(partition, JournalPartition):
            reader = JournalPartitionReader(self._options, self._columns, self._predicates)
            yield from reader.read(partition)
