"""The data pipeline: topics, streams and journals as Spark DataFrames, and DataFrames as messages.

    from pipeline import session

    spark = session()
    orders = spark.read.format("amps").load(server="tcp://localhost:9007/amps/json", topic="orders")

`session` starts a Spark of our own; `register` makes the formats known to one that runs already.
Neither name costs anything until it is called: PySpark is imported then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make the formats `amps` and `amps-journal` known to a session.

    Args:
        spark: the session. Its push-down of filters to Python sources is switched on, for Spark
            refuses sources that can do that while it is off.
    """
    from pipeline.formats import register_formats

    register_formats(spark)


def session(
    name: str = "amperage",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """Start Spark with the settings that suit the pipeline, and with its formats registered.

    Args:
        name: the application's name.
        master: where it runs; `local[*]` is this machine.
        conf: settings of Spark's that come on top.
        ui: whether to serve Spark's web pages.

    Returns:
        The session. It stops, and removes its temporary files, when the program ends.

    Raises:
        JavaMissingError: there is no Java 17 or newer.
    """
    from pipeline.spark_session import start

    return start(name, master=master, conf=conf or {}, ui=ui)
