"""Temporary files of programs that end, and of those that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pipeline.scratch import scratch_directory

print(scratch_directory(), flush=True)
sys.stdin.read()
"""


def started(parent: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def directory_of(program: subprocess.Popen[str]) -> Path:
    assert program.stdout is not None
    return Path(program.stdout.readline().strip())


def test_directories_go_with_their_programs(tmp_path: Path) -> None:
    """At the end, or with the next program's begin if the end was sudden; no one else's go."""
    with started(tmp_path) as killed, started(tmp_path) as living:
        abandoned, used = directory_of(killed), directory_of(living)
        killed.kill()
        killed.wait()
        assert abandoned.exists()
        with started(tmp_path) as later:
            own = directory_of(later)
            assert set(tmp_path.iterdir()) == {used, own}
            later.communicate()
            assert set(tmp_path.iterdir()) == {used}
        living.communicate()
    assert list(tmp_path.iterdir()) == []
