"""`format("amps-journal")` as Spark sees it: schema, planning, reading."""

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

from pipeline.journal.options import JournalOptions, read_options
from pipeline.journal.pieces import Piece
from pipeline.journal.planning import message_types, plan
from pipeline.journal.reading import PieceReader
from pipeline.journal.schema import JournalSchema, default_schema
from pipeline.journal.stream import AmpsJournalStreamReader
from pipeline.refusing import stream_reader


class AmpsJournalDataSource(DataSource):
    """Journals as a DataFrame."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """What `format()` calls it."""
        return "amps-journal"

    def schema(self) -> StructType:
        """The columns where no schema is given."""
        return default_schema(message_types(read_options(self._given)))

    def reader(self, schema: StructType) -> AmpsJournalReader:
        """What reads journals once."""
        return AmpsJournalReader(read_options(self._given), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """What follows journals."""
        return stream_reader(lambda: self._stream_reader(schema))

    def _stream_reader(self, schema: StructType) -> AmpsJournalStreamReader:
        options = read_options(self._given)
        return AmpsJournalStreamReader(options, JournalSchema(schema, options.tolerance))


class AmpsJournalReader(DataSourceReader):
    """Reads journals for one query.

    Args:
        options: what is asked for.
        schema: the columns.

    Raises:
        PipelineError: a column of the schema cannot be had.
    """

    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = JournalSchema(schema, options.tolerance)
        self._predicates = self._columns.accept(options.where)

    def partitions(self) -> list[InputPartition]:
        """Find out what has to be read, and divide it."""
        pieces = plan(self._options, [one for one in self._predicates if not one.on_field])
        PieceReader(self._options, self._columns, self._predicates).check(pieces)
        return [*pieces] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece."""
        if isinstance(partition, Piece):
            reader = PieceReader(self._options, self._columns, self._predicates)
            yield from reader.read(partition)
