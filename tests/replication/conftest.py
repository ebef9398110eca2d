"""Which schedules the simulation of replication plays."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.chances import GIVEN_SEED

SCHEDULES: Final = 4
"""Schedules of each kind. They are the same in each run that is given no seed."""


@pytest.fixture
def seeds() -> range:
    """The seeds of the schedules."""
    return range(SCHEDULES * GIVEN_SEED, SCHEDULES * (GIVEN_SEED + 1))
