"""`pipeline.read`: a DataFrame whose filter is applied at the source.

Spark itself translates the filter: it plans a query of a source without rows, with the same
columns, and passes the filters to that source, which returns them in the text of an error. No query
is executed for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecoder, dumps
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pipeline.amps.source import AmpsDataSource
from pipeline.filters import OPTION, write_filters
from pipeline.journal.source import AmpsJournalDataSource

_PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
_PREFIX: Final = "pushed filters: "


class _FiltersError(Exception):
    """The filters that Spark would push down."""


class _FilterReader(DataSourceReader):
    """Receives filters, and raises them in an error."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Raise an error with the filters. Spark calls this if there are any."""
        raise _FiltersError(_PREFIX + write_filters(filters))

    def partitions(self) -> Sequence[InputPartition]:
        """Raise an error without filters. Spark calls this if there were none."""
        raise _FiltersError(_PREFIX + write_filters(()))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Raise NotImplementedError; never called."""
        raise NotImplementedError


class FilterListener(DataSource):
    """A source that is never read."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "amps-filters"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's
        """Return a reader that never reads."""
        return _FilterReader()


def read_where(
    spark: SparkSession,
    *,
    where: str | Column | None,
    columns: str | StructType | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Load a DataFrame; see `pipeline.read`."""
    source = (
        AmpsJournalDataSource.name()
        if "path" in {name.lower() for name in options}
        else AmpsDataSource.name()
    )
    reader = spark.read.format(source).options(**options)
    if columns is not None:
        reader = reader.schema(columns)
    if where is None:
        return reader.load()
    filters = _filters(spark, where, reader.load().schema)
    return reader.option(OPTION, filters).load().where(where)


def _filters(spark: SparkSession, where: str | Column, schema: StructType) -> str:
    """Return the filters that Spark would push down, as a text.

    Raises:
        PySparkException: the filter is not valid for these columns.
    """
    before = spark.conf.get(_PUSH_DOWN, None)
    spark.conf.set(_PUSH_DOWN, "true")
    try:
        spark.read.format(FilterListener.name()).schema(schema).load().where(where).collect()
    except PySparkException as error:
        _, prefix, document = str(error).partition(_PREFIX)
        if not prefix:
            raise
        return dumps(JSONDecoder().raw_decode(document)[0])
    finally:
        if before is None:
            spark.conf.unset(_PUSH_DOWN)
        else:
            spark.conf.set(_PUSH_DOWN, before)
    return write_filters(())  # Spark does not plan a filter that is never true
