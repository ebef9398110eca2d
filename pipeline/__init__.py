"""The data pipeline: topics, streams and journals as Spark DataFrames, and DataFrames as messages.

    from pipeline import session

    spark = session()
    orders = spark.read.format("amps").load(server="tcp://localhost:9007/amps/json", topic="orders")

`session` starts a Spark of our own; `register` makes the formats known to one that runs already.
Neither name costs anything until it is called: PySpark is imported then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["archive", "catalogue", "read", "register", "session"]


def archive(path: str | os.PathLike[str]) -> str:
    """Write Amperage, and the libraries that it needs, into an archive for the executors of Spark.

    They need the same system and version of Python as this program has, and of libraries numpy and
    pyarrow. What Spark has to be told besides: `spark.executorEnv.PYTHONPATH=amperage`.

    Args:
        path: a new file, whose name ends in `.tar.gz` or `.tgz`.

    Returns:
        What the option `--archives` and `SparkContext.addArchive` take: the path, `#` and the name
        of the directory, `amperage`, that executors unpack it in.

    Raises:
        PipelineError: the file is there already, or has another name; Amperage is not installed.
        OSError: it cannot be written.
    """
    from pathlib import Path

    from pipeline.shipping import make_archive

    return make_archive(Path(path))


def catalogue(
    spark: SparkSession,
    server: str,
    config: str | os.PathLike[str],
    *,
    sample: int = 1000,
    **options: Any,
) -> list[str]:
    """Make a temporary view of each topic with records that a configuration names.

    `SHOW TABLES`, `DESCRIBE` and queries in SQL have them. A view is called like its topic, or
    `topic!message_type` where there are several of that name; each query reads what there is then.
    Its columns are the fields of a sample of the records as they are now; or those of whole
    messages, where there are no records, a field has values of several types, or messages do not
    say of which types their values are (as json, bson, msgpack and bflat do). Topics with a Pattern
    are left out: the configuration does not have their names.

    Args:
        spark: a session that the formats are registered with.
        server: the server's URI, such as `tcp://localhost:9007/amps`; each view has its message
            type.
        config: the file of the configuration.
        sample: from how many records columns are taken.
        options: those of `format("amps")` for all views, such as `user`.

    Returns:
        The names of the views.

    Raises:
        PipelineError: the configuration cannot be used, the server cannot be reached, or it refuses
            a query.
    """
    from pipeline.listing import make_catalogue

    return make_catalogue(spark, server, os.fspath(config), sample=sample, options=options)


def register(spark: SparkSession) -> None:
    """Make the formats `amps` and `amps-journal` known to a session.

    On this machine (a master that begins with `local`), tasks run with this program's Python. On a
    cluster they run with what PYSPARK_PYTHON names, which has to have Amperage; a line in the log
    says so, unless there is an archive of it (`archive`).

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
