"""The formats that the pipeline adds to Spark."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from pipeline.amps.source import AmpsDataSource
from pipeline.journal.source import AmpsJournalDataSource

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"

FORMATS: Final[tuple[type[DataSource], ...]] = (AmpsDataSource, AmpsJournalDataSource)


def register_formats(spark: SparkSession) -> None:
    """Make the formats known to a session; see `pipeline.register`."""
    spark.conf.set(PUSH_DOWN, "true")
    for source in FORMATS:
        spark.dataSource.register(source)
