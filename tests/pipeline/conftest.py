"""One Spark for all tests of the pipeline, and servers for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pipeline
from tests.pipeline.quick_java import quick_java
from tests.pipeline.topics import TOPICS
from tests.support.server import RunningServer, running_server

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a busy machine Spark alone may take a minute to start."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session", autouse=True)
def python_path() -> Iterator[None]:
    """What all Python processes find that Spark starts: see `at_start.sitecustomize`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{_HERE / 'at_start'}{os.pathsep}{_HERE.parents[1]}")
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; tasks that fail are tried up to five times.

    Where tests kill what runs tasks, they do so twice. Each time may cost a task two tries, for the
    second one may be given a process that is about to die, too.
    """
    conf = {"spark.driver.extraJavaOptions": quick_java()}
    session = pipeline.session("tests", master="local[2,5]", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests that do not stop it; each uses topics of its own."""
    with running_server(tmp_path_factory.mktemp("server"), elements=TOPICS) as running:
        yield running
