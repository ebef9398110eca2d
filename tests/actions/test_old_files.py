"""Which files are compressed or removed, and what becomes of the others."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from actions.catalogue import DO_MODULES
from actions.module import StepError
from actions.old_files import DoCompressFiles, FileCriteria, process_old_files
from actions.step_options import StepOptions
from config_schema.spec import Options
from tests.actions.support import Bench, echo

AGES = {"a.log": 50, "b.log": 40, "c.log": 30, "young.log": 0, "other.txt": 90}

OPTIONS = StepOptions(Options(), DO_MODULES["amps-action-do-compress-files"])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name, days in AGES.items():
        path = tmp_path / name
        path.write_text(name)
        moment = time.time() - days * 86_400
        os.utime(path, (moment, moment))
    (tmp_path / "d.log").mkdir()
    (tmp_path / "link.log").symlink_to("young.log")
    return tmp_path


CHOICES = [
    # keep, count, removed
    (None, None, {"a.log", "b.log", "c.log"}),
    (1, None, {"a.log", "b.log"}),
    (None, 1, {"a.log"}),
    (1, 1, {"a.log"}),
    (2, 5, {"a.log"}),
    (4, 2, set()),
    (0, 0, set()),
]


@pytest.mark.parametrize(("keep", "count", "removed"), CHOICES)
def test_the_oldest_go_first(
    logs: Path, keep: int | None, count: int | None, removed: set[str]
) -> None:
    before = set(os.listdir(logs))
    process_old_files(FileCriteria(str(logs / "*.log"), 86_400, keep, count), Path.unlink)
    assert before - set(os.listdir(logs)) == removed


def test_a_file_that_is_open_stays(logs: Path) -> None:
    with (logs / "b.log").open():
        process_old_files(FileCriteria(str(logs / "?.log"), 86_400, None, None), Path.unlink)
    assert (logs / "b.log").exists()
    assert not (logs / "a.log").exists()


@pytest.mark.parametrize("name", ["1.journal", "1.journal.gz"])
def test_a_journal_stays_and_the_step_fails(logs: Path, name: str) -> None:
    (logs / name).touch()
    os.utime(logs / name, (0, 0))
    with pytest.raises(StepError, match="is a journal"):
        process_old_files(FileCriteria(str(logs / "*"), 86_400, None, None), Path.unlink)
    assert (logs / name).exists()
    assert not (logs / "a.log").exists()


def test_one_file_that_cannot_be_processed_does_not_keep_the_others(logs: Path) -> None:
    (logs / "a.log.gz").write_text("in the way")
    step = DoCompressFiles(OPTIONS)
    with pytest.raises(StepError, match=r"a\.log: .*already"):
        process_old_files(FileCriteria(str(logs / "?.log"), 86_400, None, None), step.process_file)
    assert (logs / "a.log").exists()
    assert gzip.decompress((logs / "b.log.gz").read_bytes()) == b"b.log"
    assert not (logs / "b.log").exists()


def test_a_compressed_file_is_as_old_as_it_was_and_not_compressed_again(logs: Path) -> None:
    (logs / "a.log").chmod(0o600)
    changed = (logs / "a.log").stat().st_mtime
    step = DoCompressFiles(OPTIONS)
    for _ in range(2):
        process_old_files(FileCriteria(str(logs / "a.log*"), 86_400, None, None), step.process_file)
    status = (logs / "a.log.gz").stat()
    assert (status.st_mtime, status.st_mode & 0o777) == (changed, 0o600)
    assert not [name for name in os.listdir(logs) if "unfinished" in name or ".gz.gz" in name]


def test_as_a_step_with_variables(logs: Path) -> None:
    bench = Bench()
    given: dict[str, str | list[str]] = {
        "Age": "{{AGE}}",
        "Pattern": f"{logs}/{{{{P}}}}.log",
        "Keep": "0",
        "Count": "10",
    }
    bench.add(None, ("amps-action-do-remove-files", given), echo("done"))
    bench.perform(AGE=b"35d", P=b"a")
    assert bench.echoes() == ["done"]
    assert {"b.log", "c.log"} <= set(os.listdir(logs))
    assert not (logs / "a.log").exists()
