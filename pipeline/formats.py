"""The formats that the pipeline adds to Spark."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from pipeline.amps.source import AmpsDataSource
from pipeline.journal.source import AmpsJournalDataSource
from pipeline.reads import FilterListener

FORMATS: Final[tuple[type[DataSource], ...]] = (
    AmpsDataSource,
    AmpsJournalDataSource,
    FilterListener,
)


def register_formats(spark: SparkSession) -> None:
    """Make the formats known to a session; see `pipeline.register`."""
    for source in FORMATS:
        spark.dataSource.register(source)
