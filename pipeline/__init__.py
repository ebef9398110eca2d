"""The data pipeline: topics, streams and journals as Spark DataFrames, and DataFrames as messages.

    from pipeline import session

    spark = session()
    orders = spark.read.format("amps").load(server="tcp://localhost:9007/amps/json", topic="orders")

`session` starts a new Spark session; `register` adds the formats to an existing session. PySpark is
imported at the first call, so that importing this package is cheap.
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
    """Write an archive with Amperage and its dependencies for the executors of Spark.

    The executors need the same operating system and Python version as this program, and the
    libraries numpy and pyarrow. Spark also needs the setting
    `spark.executorEnv.PYTHONPATH=amperage`.

    Args:
        path: the file to create; its name ends in `.tar.gz` or `.tgz`.

    Returns:
        The value for the option `--archives` and for `SparkContext.addArchive`: the path, `#` and
        `amperage`, the name of the directory into which executors unpack the archive.

    Raises:
        PipelineError: the file exists already, or has another name; Amperage is not installed.
        OSError: the file cannot be written.
    """
    from pathlib import Path

    from pipeline.executor_archive import make_archive

    return make_archive(Path(path))


def catalogue(
    spark: SparkSession,
    server: str,
    config: str | os.PathLike[str],
    *,
    sample: int = 1000,
    **options: Any,
) -> list[str]:
    """Create a temporary view for each topic with records in a configuration.

    The views appear in `SHOW TABLES`, `DESCRIBE` and SQL queries. A view has the name of its topic,
    or `message_type.topic` where several topics have that name: clients of SQL see the same names.
    Each query reads the current records. The columns are inferred now, from the fields of a sample
    of the records. A view has the columns of whole messages instead where there are no records,
    where a field has values of several types, or where messages do not carry the types of their
    values (as json, bson, msgpack and bflat do). Topics with a Pattern are omitted: their names are
    not in the configuration.

    Args:
        spark: a session with the formats registered.
        server: the server's URI, such as `tcp://localhost:9007/amps`; each view adds its message
            type.
        config: the configuration file.
        sample: the number of records from which columns are inferred.
        options: options of `format("amps")` for all views, such as `user`.

    Returns:
        The names of the views.

    Raises:
        PipelineError: the configuration cannot be used, the server cannot be reached, or it refuses
            a query.
    """
    from pipeline.temp_views import make_catalogue

    return make_catalogue(spark, server, os.fspath(config), sample=sample, options=options)


def register(spark: SparkSession) -> None:
    """Register the formats `amps` and `amps-journal` with a session.

    On this machine (a master that begins with `local`), tasks run with this program's Python. On a
    cluster they run with the Python named by PYSPARK_PYTHON, which must have Amperage installed. A
    warning is logged about this requirement, unless Spark has the archive (`archive`).

    Args:
        spark: the session. Its settings do not change.
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
    """Return the records of a topic, or the entries of journals, with a filter pushed down.

    The server or the journal reader tests the parts of the filter that it supports; Spark applies
    the whole filter again. The filter stays with the DataFrame, which can be used several times.

    Args:
        spark: a session with the formats registered.
        where: the filter, as for `DataFrame.where`.
        columns: the schema; name only the columns that are used.
        options: options of `format("amps")`; with `path`, of `format("amps-journal")`.

    Raises:
        PySparkException: the filter or the columns are invalid.
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
    """Start Spark with settings for the pipeline, and register the formats.

    The defaults replace neither settings given to spark-submit nor settings of an existing session.

    Args:
        name: the application's name; the default is `amperage`.
        master: the Spark master; the default is `local[*]`, this machine.
        conf: additional Spark settings.
        ui: whether to serve Spark's web pages; the default is not to.

    Returns:
        The session. If this call started it, it stops and removes its temporary files when the
        program ends.

    Raises:
        JavaMissingError: there is no Java 17 or newer.
    """
    from pipeline.spark_session import start

    return start(name, master=master, conf=conf or {}, ui=ui)
