"""What `make test` leaves to `make test-long`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.long_form import spread
from tests.support.server import ROOT

FILE = "tests/recovery/test_replaced_instances.py"
TEST = "test_catching_up_is_interrupted_again_and_again"


@pytest.mark.parametrize(
    ("values", "count", "kept"),
    [
        ("abcdefghij", 5, "acegi"),
        ("abcdefghij", 4, "acfh"),
        ("abc", 1, "a"),
        ("abc", 3, "abc"),
    ],
)
def test_values_of_all_runs_are_evenly_spread(values: str, count: int, kept: str) -> None:
    given = spread(values, count)
    assert [value for value in given if isinstance(value, str)] == list(kept)
    assert [value if isinstance(value, str) else value.values[0] for value in given] == [*values]


@pytest.mark.parametrize("options", [(), ("--long", "-m", "long")])
def test_a_test_for_long_runs_is_in_no_other(options: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "addopts=-q", "--collect-only", *options, FILE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert FILE in run.stdout
    assert (TEST in run.stdout) == bool(options)
