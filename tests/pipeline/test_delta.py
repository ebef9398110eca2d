"""Delta tables, wherever what adds to them is killed.

What changes them is done in processes of its own, which import this module: it needs no Spark.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.compaction import MERGE_FACTOR
from pipeline.delta import DeltaTarget
from pipeline.errors import PipelineError
from pipeline.files import JobState
from tests.pipeline.delta_log import rows
from tests.pipeline.table_kills import killed_elsewhere_at
from tests.support.chances import GIVEN_SEED

NEVER = 1 << 30
SOME_STEPS = 5 if GIVEN_SEED else 15
"""Every so many of the steps of a run are tried: each takes two processes that load the library."""


def state_of(target: DeltaTarget) -> JobState:
    return target.read_state() or JobState("export", "one", "journals", format="delta")


def stage(target: DeltaTarget, ids: range) -> None:
    """Do what a run of an export does before it is finished."""
    target.staging_folder.mkdir(parents=True)
    table = pa.table({"id": list(ids), "topic": ["orders"] * len(ids)})
    pq.write_table(table, target.staging_folder / "part-0.parquet")


def some_runs(table: Path) -> None:
    """A table that some runs have added ten rows each to."""
    target = DeltaTarget(table, ["topic"])
    with target.lock():
        for number in range(MERGE_FACTOR):
            stage(target, range(10 * number, 10 * number + 10))
            target.append_staged(state_of(target))


def add(table: Path) -> None:
    """What has not been added yet."""
    target = DeltaTarget(table, ["topic"])
    with target.lock():
        state = state_of(target)
        if "A" in state.reached:
            return
        stage(target, range(1000, 1010))
        state.reached["A"] = 1010
        target.append_staged(state)


def replace(table: Path) -> None:
    target = DeltaTarget(table, ["topic"])
    with target.lock():
        stage(target, range(2000, 2010))
        target.replace_with_staged(state_of(target))


BEFORE = [*range(10 * MERGE_FACTOR)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "after"),
    [
        pytest.param(add, [*BEFORE, *range(1000, 1010)], id="rows are added"),
        pytest.param(replace, [*range(2000, 2010)], id="rows are replaced"),
    ],
)
def test_no_row_is_lost_or_doubled_wherever_a_run_is_killed(
    tmp_path: Path, change: Callable[[Path], None], after: list[int]
) -> None:
    """Whatever is between what was there and what is there: the table has one or the other."""
    whole = tmp_path / "whole"
    assert not killed_elsewhere_at(NEVER, some_runs, whole)
    for step in itertools.count(1, SOME_STEPS):
        table = tmp_path / "table"
        shutil.copytree(whole, table)
        was_killed = killed_elsewhere_at(step, change, table)
        assert rows(table, "id") in (BEFORE, after), step
        assert not killed_elsewhere_at(NEVER, change, table), "as the next run does"
        assert rows(table, "id") == after
        shutil.rmtree(table)
        if not was_killed:
            break
    assert step > 15


def forget_a_run(table: Path) -> None:
    """What a table has that was put back as it was earlier, but for the rows."""
    target = DeltaTarget(table, ["topic"])
    with target.lock():
        state = state_of(target)
        state.runs -= 1
        stage(target, range(5))
        with pytest.raises(PipelineError, match="has rows of runs without a stored state"):
            target.append_staged(state)


def test_a_table_that_is_ahead_of_what_is_remembered_gets_nothing(tmp_path: Path) -> None:
    """Whatever would be added could have the number of a run that is there."""
    table = tmp_path / "table"
    assert not killed_elsewhere_at(NEVER, some_runs, table)
    assert not killed_elsewhere_at(NEVER, forget_a_run, table)
    assert rows(table, "id") == BEFORE
