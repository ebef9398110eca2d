"""Starts a Spark session with the settings that every session of the pipeline needs."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pipeline.formats import register_formats
from pipeline.java import java_home
from pipeline.scratch import scratch_directory

_PACKAGES: Final = Path(__file__).parents[1]
"""Where executors find the pipeline and what it imports."""

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_LONGEST: Final = 60
"""Bytes of a directory in which the path of a socket, at most 107, has room for its name."""


def settings(directory: Path) -> dict[str, str]:
    """What every session of the pipeline is configured with.

    Args:
        directory: for the files that Spark shuffles and spills.
    """
    return {
        # A third of a micro-batch's time goes into its two small files; this one renames them
        # without starting a process.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Rows go from Python to Spark through a socket; one of the file system costs less than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # The default of 200 is made for clusters; each partition costs a task.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.executorEnv.PYTHONPATH": str(_PACKAGES),
    }


def _temporary_files(directory: Path) -> dict[str, str]:
    """Have Java and its sockets leave nothing behind in the system's directory for such files."""
    directory.joinpath("java-tmp").mkdir()
    return {
        "spark.driver.defaultJavaOptions": f'-Djava.io.tmpdir="{directory}/java-tmp"',
        "spark.python.unix.domain.socket.dir": str(directory),
        "spark.python.unix.domain.socket.enabled": str(len(str(directory)) < _LONGEST).lower(),
    }


def start(name: str, *, master: str, conf: Mapping[str, str], ui: bool) -> SparkSession:
    """Start a session; see `pipeline.session`."""
    directory = scratch_directory()
    home = java_home(directory)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = settings(directory) | {"spark.ui.enabled": str(ui).lower()}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        chosen |= _temporary_files(directory)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (chosen | dict(conf)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    # Last registered runs first: Spark lets go of its files before they are removed.
    atexit.register(spark.stop)
    register_formats(spark)
    return spark
