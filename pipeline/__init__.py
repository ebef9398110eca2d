"""The data pipeline: topics, streams and journals as Spark DataFrames, and DataFrames as messages.

    from pipeline import session

    spark = session()
    orders = spark.read.format("amps").load(server="tcp://localhost:9007/amps/json", topic="orders")

`session` starts a Spark of our own; `register` makes the formats known to one that runs already.
Neither name costs anything until it is called: PySpark is imported then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["read", "register", "session"]


def register(spark: SparkSession) -> None:
    """Make the formats `amps` and `amps-journal` known to a session.

    On this machine (a master that begins with `local`), tasks run with this program's Python. On a
    cluster they run with what PYSPARK_PYTHON names, which has to have Amperage.

    Args:
        spark: the session. Its settings stay.
    """
    from pipeline.formats import register_formats

    register_formats(spark)


def read(
    spark: SparkSession,
    *,
    where: str | Column | None = None,
    columns: str | StructType | None = None,
    **options: Any,
) -> DataFrame:
    """Load records of a topic, or journals, with a filter that goes to where the rows come from.

    What the server, or who reads the journals, can tell of the filter is tested there; Spark
    applies all of it. The filter stays with the DataFrame, which can be used as often as one likes.

    Args:
        spark: a session that the formats are registered with.
        where: the filter, as `DataFrame.where` takes it.
        columns: the schema; name only the columns that are used.
        options: those of `format("amps")`; with `path`, those of `format("amps-journal")`.

    Raises:
        PySparkException: the filter or the columns cannot be.
    """
    from pipeline.reads import read_where

    return read_where(spark, where=where, columns=columns, options=options)


def session(
    name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    ui: bool | None = None,
) -> SparkSession:
    """Start Spark with the settings that suit the pipeline, and with its formats registered.

    What spark-submit was told stays, and so do all settings of a session that is there already.

    Args:
        name: the application's name; `amperage` if nobody says it.
        master: where it runs; `local[*]`, this machine, if nobody says it.
        conf: settings of Spark's that come on top.
        ui: whether to serve Spark's web pages; not if nobody says it.

    Returns:
        The session. One that was started here stops, and removes its temporary files, when the
        program ends.

    Raises:
        JavaMissingError: there is no Java 17 or newer.
    """
    from pipeline.spark_session import start

    return start(name, master=master, conf=conf or {}, ui=ui)
