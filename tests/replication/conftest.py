"""How long the simulation of replication goes on."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        count = metafunc.config.getoption("--schedules")
        metafunc.parametrize("seeds", [range(count)], ids=[f"{count} schedules"])
