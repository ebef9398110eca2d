"""The formats that the pipeline adds to Spark."""

from __future__ import annotations

import logging
import sys
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

from pipeline.amps.source import AmpsDataSource
from pipeline.executor_archive import DIRECTORY
from pipeline.journal.source import AmpsJournalDataSource
from pipeline.reads import FilterListener

FORMATS: Final[tuple[type[DataSource], ...]] = (
    AmpsDataSource,
    AmpsJournalDataSource,
    FilterListener,
)


def register_formats(spark: SparkSession) -> None:
    """Register the formats with a session; see `pipeline.register`."""
    _use_this_python(spark)
    for source in FORMATS:
        spark.dataSource.register(source)


def _use_this_python(spark: SparkSession) -> None:
    """Make tasks on this machine use the current Python; warn if executors may lack Amperage.

    Spark would use `python3` of PATH, which is another one in an environment that is not activated.
    """
    if is_remote() or not sys.executable:
        return
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    elif f"#{DIRECTORY}" not in context.getConf().get("spark.archives", ""):
        logging.getLogger("pipeline").warning(
            "pipeline: executors of %s run %s, which must have Amperage; if it is not installed"
            " there, send them --archives of pipeline.archive(path), with --conf"
            " spark.executorEnv.PYTHONPATH=%s",
            context.master,
            context.pythonExec,
            DIRECTORY,
        )
