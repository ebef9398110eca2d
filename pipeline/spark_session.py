"""Starts a Spark session with settings for the pipeline, unless others are given.

Settings of the caller take precedence, then those of spark-submit. An existing session keeps its
settings.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pipeline.error_reports import install_excepthook, log4j2_configuration
from pipeline.formats import register_formats
from pipeline.java import java_home
from pipeline.scratch import scratch_directory

_PACKAGES: Final = Path(__file__).parents[1]
"""The directory where executors find the pipeline and its imports."""

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_THIS_MACHINE: Final = "local[*]"
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""The variable in which spark-submit passes the port of its Java."""

_MAX_SOCKET_DIRECTORY_LENGTH: Final = 60
"""Maximum bytes of a directory for sockets: a socket path has at most 107, with its name."""


def settings(directory: Path) -> dict[str, str]:
    """Return the default settings of a session of the pipeline.

    Args:
        directory: the directory for files that Spark shuffles and spills.
    """
    return {
        # A micro-batch spends a third of its time on its two small files; this manager renames them
        # without starting a process.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Rows are sent from Python to Spark through a socket; a Unix socket costs less than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # The default of 200 is for clusters; each partition costs a task.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.executorEnv.PYTHONPATH": str(_PACKAGES),
    }


def _temporary_files(directory: Path) -> dict[str, str]:
    """Return settings that keep files of Java and its sockets out of the system's directory."""
    directory.joinpath("java-tmp").mkdir()
    java_options = f'-Djava.io.tmpdir="{directory}/java-tmp"'
    if not _has_log_configuration():
        java_options += f' -Dlog4j2.configurationFile="{log4j2_configuration(directory)}"'
    return {
        "spark.driver.defaultJavaOptions": java_options,
        "spark.python.unix.domain.socket.dir": str(directory),
        "spark.python.unix.domain.socket.enabled": str(
            len(str(directory)) < _MAX_SOCKET_DIRECTORY_LENGTH
        ).lower(),
    }


def start(
    name: str | None, *, master: str | None, conf: Mapping[str, str], ui: bool | None
) -> SparkSession:
    """Start a session; see `pipeline.session`."""
    builder = SparkSession.builder
    requested = dict(conf)
    if name is not None:
        requested["spark.app.name"] = name
    if master is not None:
        requested["spark.master"] = master
    if ui is not None:
        requested["spark.ui.enabled"] = str(ui).lower()
    is_new = SparkSession.getActiveSession() is None and "SPARK_REMOTE" not in os.environ
    settings_to_apply = (_defaults(requested) if is_new else {}) | requested
    for key, value in settings_to_apply.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_new:
        # Handlers run in reverse order: Spark closes its files before they are removed.
        atexit.register(_stop, spark)
        install_excepthook()
    register_formats(spark)
    return spark


def _stop(spark: SparkSession) -> None:
    """Stop Spark at the end of the program; Java ends in any case with its standard input.

    A call of Java that was interrupted leaves a connection that cannot be used any more.
    """
    with suppress(Exception):
        spark.stop()


def _defaults(requested: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that neither the caller nor spark-submit has given."""
    submitted = {**_submitted(), **requested}
    directory = scratch_directory()
    home = java_home(directory)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    master = submitted.get("spark.master", _THIS_MACHINE)
    settings_to_apply = settings(directory) | {
        "spark.app.name": "amperage",
        "spark.master": master,
        "spark.ui.enabled": "false",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings_to_apply |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        settings_to_apply |= _temporary_files(directory)
    if _GATEWAY not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {key: value for key, value in settings_to_apply.items() if key not in submitted}


def _has_log_configuration() -> bool:
    """Return whether Spark has a log configuration of the user."""
    home = os.environ.get("SPARK_HOME", "")
    return any(Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf").glob("log4j2.*"))


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, if it runs this program."""
    if _GATEWAY not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the Java that is running
    return dict(SparkConf().getAll())
