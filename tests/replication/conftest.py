"""Which schedules the simulation of replication plays."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.chances import GIVEN_SEED

SCHEDULES: Final = 4
USUAL_SCHEDULES: Final = 1
"""Schedules of each kind in a run that is given no seed: the same in each such run."""


@pytest.fixture
def seeds() -> range:
    """The seeds of the schedules."""
    start = SCHEDULES * GIVEN_SEED
    return range(start, start + (SCHEDULES if GIVEN_SEED else USUAL_SCHEDULES))


@pytest.fixture
def all_seeds(seeds: range) -> range:
    """The seeds, with those that usual runs leave out, for tests of what happens seldom."""
    return range(seeds.start, seeds.start + SCHEDULES)
