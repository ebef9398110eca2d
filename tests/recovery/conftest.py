"""How much the tests with random kills and faults do: more with `--long` than in usual runs."""

from __future__ import annotations

from typing import Final

import pytest

_LOGS: Final = 4
"""Logs of a long run: the power fails in every second one. Usual runs have one of these."""

_KILLS_OF_ONE_LOG: Final = 3
_KILLS_OF_ONE_LOG_LONG: Final = 10
"""After so many kills a fresh log is begun: every check reads all of it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that have a parameter `log_number` once for each log."""
    if "log_number" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--long")
        metafunc.parametrize("log_number", range(_LOGS) if is_long else [1])


@pytest.fixture
def kills(pytestconfig: pytest.Config) -> int:
    """How many times a server with one log is killed."""
    return _KILLS_OF_ONE_LOG_LONG if pytestconfig.getoption("--long") else _KILLS_OF_ONE_LOG
