"""Commands whose output cannot be written, that nobody reads, or that are interrupted."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from server.process.minidump import write_minidump
from tests.statistics.support import recorded
from tests.support.long_form import spread
from tests.support.quick import quick_command
from tests.support.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
TOOLS = {
    "ampserr": "ampserr .",
    "amps-grep": "amps_grep -n a $FILE",
    "amps_file": "amps_file $FILE",
    "amps-report-minidump": "amps_report_minidump $DUMP",
    "amps-sqlite3": "amps_sqlite3 $DATABASE --size",
    "amps_sqlite3_report": "amps_sqlite3_report $DATABASE 20180501T000000",
    "amps-backup": "amps_backup --help",
    "amps-users": "amps_users --help",
    "spark": "spark help",
}
"""What each is called, and how it is run on a file with a line in it."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands find files by, which they only read."""
    directory = tmp_path_factory.mktemp("files")
    file = directory / "a.log"
    file.write_text("a\n")
    database = directory / "stats.db"
    with recorded(database):
        pass
    dump = write_minidump(str(directory), 0o600, "a", {})
    paths = {"FILE": file, "DATABASE": database, "DUMP": dump}
    named = {name: str(path) for name, path in paths.items()}
    return os.environ | named | {"PYTHONPATH": str(ROOT)}


def shell(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"exec {line}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("name", TOOLS)
def test_a_full_disk_is_one_line(name: str, environment: dict[str, str]) -> None:
    module, _, words = TOOLS[name].partition(" ")
    command = shlex.join(quick_command(f"server.cli.{module}"))
    run = shell(f"{command} {words} >/dev/full", environment)
    assert run.returncode in (1, 2)
    assert run.stderr == f"{name}: standard output: No space left on device\n"


@pytest.mark.parametrize("name", spread(tuple(TOOLS), 3))
def test_a_command_without_streams_does_its_work(name: str, environment: dict[str, str]) -> None:
    run = shell(f"{sys.executable} -m server.cli.{TOOLS[name]} <&- >&- 2>&-", environment)
    assert run.returncode == 0


def test_an_interrupt_ends_a_command_without_a_word(environment: dict[str, str]) -> None:
    """Here of one that has answered, and waits for more input."""
    with subprocess.Popen(
        [sys.executable, "-m", "server.cli.amps_grep", "a"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        # More than a buffer holds, less than a pipe.
        running.stdin.write(b"2026-01-01T00:00:00 a\n" * 1000)
        running.stdin.flush()
        running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_SECONDS) == 130
        assert running.stderr.read() == b""
