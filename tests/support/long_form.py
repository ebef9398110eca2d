"""The long form of the tests: `make test-long` runs what `make test` leaves out.

A test that is marked `ONLY_LONG` proves what others prove too, at greater length: with more
topologies, larger data, or all combinations of what the others try some of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

ONLY_LONG: Final = pytest.mark.long(only=True)
"""The mark of tests, and of cases, that only runs with `--long` have."""


def spread(values: Sequence[Any], count: int, *, several: bool = False) -> list[Any]:
    """Return the values of a parameter: `count` for all runs, and the others for long runs.

    Args:
        values: all values; those for all runs are evenly spread among them.
        count: how many there are in each run.
        several: each value is a tuple, of the values of several parameters.
    """
    kept = {number * len(values) // count for number in range(count)}
    return [
        value
        if number in kept
        else pytest.param(*(value if several else (value,)), marks=ONLY_LONG)
        for number, value in enumerate(values)
    ]


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that only runs with `--long` have, unless this is one."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if _is_only_long(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_only_long(item)]


def _is_only_long(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("only") for mark in item.iter_markers("long"))
