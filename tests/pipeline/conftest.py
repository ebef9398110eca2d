"""A Spark that the tests of a process share, and servers for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pipeline
from tests.pipeline.at_start.sitecustomize import QUICK_PYTHON
from tests.pipeline.quick_java import quick_java
from tests.pipeline.quick_python import quick_python
from tests.pipeline.topics import TOPICS
from tests.support.server import RunningServer, running_server

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a busy machine Spark alone may take a minute to start."""
    for item in items:
        if item.nodeid.startswith("tests/pipeline/"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session", autouse=True)
def python_path() -> Iterator[None]:
    """What all Python processes find that Spark starts: see `at_start.sitecustomize`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{_HERE / 'at_start'}{os.pathsep}{_HERE.parents[1]}")
        yield


@pytest.fixture(scope="session", name="quick_python")
def _quick_python(python_path: None) -> Iterator[None]:
    """Fork the Python processes of all Sparks; see `tests.pipeline.quick_python`."""
    with quick_python() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv(QUICK_PYTHON, name)
        yield


@pytest.fixture(scope="session")
def spark(quick_python: None) -> Iterator[SparkSession]:
    """Two cores; tasks that fail are tried up to five times; one partition behind a shuffle.

    Where tests kill what runs tasks, they do so twice. Each time may cost a task two tries, for the
    second one may be given a process that is about to die, too.

    Behind a shuffle, each partition costs a stateful query a process and a store in each batch.
    """
    conf = {
        "spark.driver.extraJavaOptions": quick_java(),
        "spark.sql.shuffle.partitions": "1",
    }
    session = pipeline.session("tests", master="local[2,5]", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests that do not stop it; each uses topics of its own."""
    with running_server(tmp_path_factory.mktemp("server"), elements=TOPICS) as running:
        yield running
