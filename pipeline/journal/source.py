"""`format("amps-journal")` as Spark sees it: schema, push-down, planning, reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StringType, StructType

from pipeline.journal.columns import BODY, METADATA, full_schema
from pipeline.journal.errors import JournalReadError
from pipeline.journal.options import JournalOptions, read_options
from pipeline.journal.pieces import Piece
from pipeline.journal.planning import message_types, plan
from pipeline.journal.predicates import Predicate, accept
from pipeline.journal.reading import PieceReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_TEXTS = frozenset(("json", "fix", "nvfix", "xml"))
"""Message types whose bodies are text."""


class AmpsJournalDataSource(DataSource):
    """Journals as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """What `format()` calls it."""
        return "amps-journal"

    def schema(self) -> StructType:
        """Whole messages with everything that is known of them."""
        kinds = message_types(read_options(self.options))
        return full_schema(StringType() if kinds <= _TEXTS else BinaryType())

    def reader(self, schema: StructType) -> AmpsJournalReader:
        """Reads what a query asks for."""
        return AmpsJournalReader(read_options(self.options), schema)


class AmpsJournalReader(DataSourceReader):
    """Reads journals for one query.

    Args:
        options: what is asked for.
        schema: the columns.

    Raises:
        JournalReadError: a column of the schema cannot be had.
    """

    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._predicates: tuple[Predicate, ...] = ()
        PieceReader(options, schema, ())  # says at once what cannot be read

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take over what can be tested here; the rest goes back."""
        self._predicates, rejected = accept(filters, self._schema)
        yield from rejected

    def partitions(self) -> list[InputPartition]:
        """What has to be read, in pieces."""
        pieces: list[InputPartition] = [*plan(self._options, self._predicates)]
        return pieces or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece."""
        if isinstance(partition, Piece):
            yield from PieceReader(self._options, self._schema, self._predicates).read(partition)


def check_schema(schema: StructType) -> None:
    """See whether the columns with the names of ours have their types.

    Raises:
        JournalReadError: one has not; it names the column and both types.
    """
    for field in schema.fields:
        if field.name == BODY:
            fits, expected = isinstance(field.dataType, StringType | BinaryType), "string or binary"
        elif field.name in METADATA:
            kind = METADATA[field.name]
            fits, expected = field.dataType == kind, kind.simpleString()
        else:
            continue
        if not fits:
            raise JournalReadError(
                f"column {field.name} of the schema: {field.dataType.simpleString()}: expected "
                f"{expected}"
            )
