"""The commands of Spark: spark-submit, spark-sql and others, as users type them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from pipeline.java import java_home
from tests.pipeline.at_start.sitecustomize import QUICK_PYTHON
from tests.pipeline.quick_java import quick_java

HOME = Path(pyspark.__file__).parent
AT_START = Path(__file__).parent / "at_start"


def run_spark(
    command: str,
    *words: str,
    directory: Path,
    conf: Mapping[str, str] | None = None,
    quick_python: bool = False,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command of Spark's to its end.

    Args:
        command: such as "spark-submit".
        words: what comes behind the settings.
        directory: where it runs.
        conf: settings.
        quick_python: fork the driver's Python processes, if the fixture of that name is used;
            otherwise they are as Spark starts them.
        environment: variables on top of this process's. The path of Python has nothing of ours
            unless it is among them.
    """
    given = {
        "spark.driver.extraJavaOptions": quick_java(),
        "spark.executor.extraJavaOptions": quick_java(),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    settings = given | dict(conf or {})
    inherited = {
        key: text for key, text in os.environ.items() if quick_python or key != QUICK_PYTHON
    }
    variables = inherited | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(AT_START),
    }
    java = java_home(directory)
    if java is not None:
        variables["JAVA_HOME"] = str(java)
    return subprocess.run(
        [str(HOME / "bin" / command), *_options(settings), *words],
        cwd=directory,
        env=variables | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _options(settings: Mapping[str, str]) -> Iterator[str]:
    for name, value in settings.items():
        yield from ("--conf", f"{name}={value}")
