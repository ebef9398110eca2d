"""Spark's master and workers as processes of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pipeline.java import java_home
from tests.pipeline.quick_java import quick_java
from tests.pipeline.spark_commands import HOME
from tests.support.server import free_port
from tests.support.waiting import wait_until


@contextmanager
def process(log: Path, *words: str, **environment: str) -> Iterator[Path]:
    """A process of Spark's, and what it says."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    variables = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
    }
    java = java_home(log.parent)
    if java is not None:
        variables["JAVA_HOME"] = str(java)
    with log.open("wb") as said:
        running = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *words],
            env=kept | variables | environment,
            stdout=said,
            stderr=said,
        )
    try:
        yield log
    finally:
        running.terminate()
        running.wait()


@contextmanager
def cluster(directory: Path, python: Path, hosts: Sequence[str]) -> Iterator[str]:
    """A master and workers.

    Args:
        directory: for what they write.
        python: the commands of the workers' Python.
        hosts: an address of this machine for each worker: Spark takes them for machines.

    Yields:
        The master's URI.
    """
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    quiet = ("--webui-port", "0")
    at = ("--host", "127.0.0.1", "--port", str(port))
    worker = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work"), address)
    with ExitStack() as stack:
        master = stack.enter_context(
            process(directory / "master.log", f"{package}.master.Master", *quiet, *at)
        )
        wait_until(lambda: "I have been elected leader" in master.read_text())
        path = f"{python}{os.pathsep}{os.environ['PATH']}"
        for host in hosts:
            words = (f"{package}.worker.Worker", *quiet, "--host", host, *worker)
            own = {"PATH": path, "SPARK_LOCAL_IP": host}
            stack.enter_context(process(directory / f"worker-{host}.log", *words, **own))
        wait_until(lambda: master.read_text().count("Registering worker") == len(hosts))
        yield address
