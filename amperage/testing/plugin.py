"""Fixtures for pytest. A conftest.py requests them: `pytest_plugins = ["amperage.testing.plugin"]`.

They are not registered for every run of pytest in the environment: an application that does not use
them pays nothing, and its conftest.py shows the origin of the fixtures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from amperage.testing.server import DEFAULT_CONFIGURATION, TemporaryServer, run_server

_LOG_LINES: Final = 100
"""The number of lines of a server's log in the report of a failed test."""

_LOG_DELAY_S: Final = 0.1
"""How long a server may take to write the entries of a failed test, which it does in batches."""


@pytest.fixture(scope="session")
def amperage_configuration() -> str | Path:
    """Return the configuration of `amperage_server`, a text or a path, for tests to override."""
    return DEFAULT_CONFIGURATION


@pytest.fixture
def amperage_server(
    amperage_configuration: str | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TemporaryServer]:
    """Run a server for one test, with empty files. The report of a failed test has its log."""
    directory = tmp_path_factory.mktemp("amperage")
    with run_server(amperage_configuration, directory=directory) as server:
        yield server


def server_fixture(
    configuration: str | Path = DEFAULT_CONFIGURATION,
    *,
    scope: Literal["session", "package", "module", "class", "function"] = "session",
) -> Callable[..., Iterator[TemporaryServer]]:
    """Return a fixture with a server, which all tests of a scope share.

    Args:
        configuration: the text of a configuration, or the path of a file.
        scope: the scope of the fixture.
    """

    @pytest.fixture(scope=scope)
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
        directory = tmp_path_factory.mktemp("amperage")
        with run_server(configuration, directory=directory) as running:
            yield running

    return server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the servers that a failed test uses to its report."""
    report = yield
    if report.failed:
        values: dict[str, Any] = getattr(item, "funcargs", {})
        for name, value in values.items():
            if isinstance(value, TemporaryServer):
                time.sleep(_LOG_DELAY_S)
                end = "\n".join(value.log().splitlines()[-_LOG_LINES:])
                report.sections.append((f"Log of {name}", end))
    return report
