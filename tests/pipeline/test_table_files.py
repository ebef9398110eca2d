"""What readers of an exported table see while it changes, and after a crash at any point."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.compaction import MERGE_FACTOR, CompactedTable
from pipeline.files import JobState, JobTarget
from tests.pipeline.table_kills import killed_at
from tests.support.chances import GIVEN_SEED

DAY = Path("topic=orders") / "date=2026-01-02"


def rows(table: Path) -> list[int]:
    """What whoever looks for Parquet files with a plain pattern finds, whatever the folder."""
    found = duckdb.read_parquet(f"{table}/**/*.parquet").project("id").fetchall()
    same = ds.dataset(table, partitioning="hive", format="parquet").to_table(["id"])
    assert sorted(same["id"].to_pylist()) == sorted(one for (one,) in found)
    return sorted(one for (one,) in found)


def stage(target: JobTarget, ids: range, day: Path = DAY) -> None:
    """Do what a run of an export does before it is finished."""
    folder = target.staging_folder / day
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": list(ids)}), folder / f"part-{ids.start:06}.parquet")


def state_of(target: JobTarget) -> JobState:
    return target.read_state() or JobState("export", "one", "journals")


def some_files(table: Path, count: int) -> None:
    """A table that some runs have added ten rows each to."""
    target = JobTarget(table)
    with target.lock():
        for number in range(count):
            stage(target, range(10 * number, 10 * number + 10))
            target.append_staged(state_of(target))


def add(table: Path) -> None:
    """What has not been added yet."""
    target = JobTarget(table)
    with target.lock():
        if "A" in state_of(target).reached:
            return
        stage(target, range(1000, 1010))
        shutil.copytree(
            target.staging_folder / DAY, target.staging_folder / "topic=other" / "date=2026-01-02"
        )
        state = state_of(target)
        state.reached["A"] = 1010
        target.append_staged(state)


def put_together(table: Path) -> None:
    target = CompactedTable(table)
    with target.lock():
        target.compact(state_of(target))


def replace(table: Path) -> None:
    target = JobTarget(table)
    with target.lock():
        stage(target, range(2000, 2010))
        target.replace_with_staged(state_of(target))


SOME_STEPS = 1 if GIVEN_SEED else 3
"""Every so many of the steps of a run are tried."""

ADDED = [*range(1000, 1010)] * 2
"""In two topics."""
BEFORE = [*range(10 * MERGE_FACTOR)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "seen", "after"),
    [
        pytest.param(add, [[], ADDED[:10], ADDED], [*BEFORE, *ADDED], id="files are added"),
        pytest.param(put_together, [[]], BEFORE, id="files are put together"),
        pytest.param(replace, [[], None], [*range(2000, 2010)], id="files are replaced"),
    ],
)
def test_no_row_is_lost_or_doubled_wherever_a_run_is_killed(
    tmp_path: Path,
    change: Callable[[Path], None],
    seen: list[list[int] | None],
    after: list[int],
) -> None:
    """Whatever is between what was there and what is there: readers see one or the other."""
    whole = tmp_path / "whole"
    some_files(whole, MERGE_FACTOR)
    allowed = [after if one is None else sorted(BEFORE + one) for one in seen]
    states = set()
    for step in itertools.count(1, SOME_STEPS):
        table = tmp_path / "table"
        shutil.copytree(whole, table)
        was_killed = killed_at(step, change, table)
        found = rows(table)
        assert found in allowed, step
        states.add(len(found))
        change(table)  # as the next run does
        left = sorted(path.name for path in table.iterdir() if not path.name.startswith("topic="))
        assert left == ["_amps_pipeline"]
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        assert rows(table) == sorted(after)
        shutil.rmtree(table)
        if not was_killed:
            break
    assert step > 20
    assert states == {len(one) for one in allowed}
