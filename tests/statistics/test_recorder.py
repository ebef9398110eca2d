"""Statistics go on, whatever becomes of their file."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO

import pytest

from server.statistics.history import lifetimes
from server.statistics.layout import SAMPLES
from server.statistics.recorder import RETRY_INTERVAL_S, StatisticsRecorder
from server.statistics.resources import CLIENTS
from tests.engine.support import RecordingLog
from tests.statistics.recorder import record
from tests.support.forked import context
from tests.support.modes import bound_by_modes
from tests.support.server import ROOT, environment
from tests.support.small_disk import SmallDisk, small_disk

from .support import Clients, Writing


class Recorded:
    """Writes a sample each time it is asked to, to a file that may be in trouble."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.log = RecordingLog()
        self.stamps: list[int] = []
        self._clients = Clients()
        self._writing = Writing(StatisticsRecorder(str(path), self.log, clock=lambda: self.now))

    @property
    def recording(self) -> StatisticsRecorder:
        return self._writing.recording

    def write(self) -> None:
        at = len(self.stamps)
        self.stamps.append(self._writing.write(self._clients.sample(at, {"1": at})).timestamp)

    @property
    def ids(self) -> list[str]:
        return [message_id for message_id, _ in self.log.entries]

    def check_all_is_there(self) -> None:
        """What has been written is what is found, in the file and from the beginning."""
        self.recording.close()
        with closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        again = StatisticsRecorder(str(self.path), self.log)
        assert again.uses_configured_path
        found = again.history.values(CLIENTS, "1", "bytes_in")
        assert found == list(zip(self.stamps, range(len(self.stamps)), strict=True))
        again.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_a_locked_file_is_made_up_for_later(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "stats.db")
    recorded.write()
    with _locked(recorded.path):
        recorded.write()
        recorded.write()
        assert recorded.ids == ["1B-0001"]
        recorded.now += RETRY_INTERVAL_S
        recorded.write()  # it is tried in vain
        assert not recorded.recording.uses_configured_path
    recorded.write()
    assert not recorded.recording.uses_configured_path
    recorded.now += RETRY_INTERVAL_S
    recorded.write()
    assert recorded.recording.uses_configured_path
    assert recorded.ids == ["1B-0001", "1B-0002"]
    assert recorded.log.entries[-1][1]["count"] == 4
    recorded.write()
    recorded.check_all_is_there()


def test_a_file_that_is_read_only_is_made_up_for_when_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    before = Recorded(path)
    before.write()
    before.recording.close()
    content = path.read_bytes()
    path.chmod(0o444)
    with bound_by_modes():
        recorded = Recorded(path)
        recorded.stamps = list(before.stamps)
        recorded.write()
        recorded.now += RETRY_INTERVAL_S
        recorded.write()
        assert recorded.ids == ["1B-0001"]
        assert str(recorded.log.entries[0][1]["what"]) == "Permission denied"
        assert path.read_bytes() == content
        path.chmod(0o644)
        recorded.now += RETRY_INTERVAL_S
        recorded.write()
        assert recorded.ids == ["1B-0001", "1B-0002"]
    recorded.check_all_is_there()


def test_what_is_in_memory_is_written_at_the_end(tmp_path: Path) -> None:
    """To a directory that cannot be made at first."""
    (tmp_path / "stats").touch()
    recorded = Recorded(tmp_path / "stats" / "stats.db")
    recorded.write()
    recorded.write()
    assert recorded.ids == ["1B-0001"]
    (tmp_path / "stats").unlink()
    recorded.check_all_is_there()


def test_only_one_instance_records_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    first, second = Recorded(path), Recorded(path)
    first.write()
    second.write()
    assert (first.ids, second.ids) == ([], ["1B-0001"])
    assert str(second.log.entries[0][1]["what"]) == "this process records statistics in it"
    first.check_all_is_there()
    second.recording.close()


def test_a_file_that_is_removed_is_made_again(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "stats.db")
    recorded.write()
    for path in tmp_path.iterdir():
        path.unlink()
    recorded.stamps.clear()
    recorded._clients = Clients()
    recorded.write()
    assert recorded.ids == []
    recorded.check_all_is_there()


def test_a_damaged_file_is_kept_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    recorded = Recorded(path)
    for _ in range(100):
        recorded.write()
    recorded.recording.close()
    damaged = path.read_bytes()[:100].ljust(path.stat().st_size, b"\xa5")
    path.write_bytes(damaged)
    recorded = Recorded(path)
    recorded.write()
    [(message_id, fields)] = recorded.log.entries
    assert (message_id, fields["path"]) == ("1B-0003", str(path))
    assert fields["aside"] == tmp_path / "stats.db.damaged-1"
    assert (tmp_path / "stats.db.damaged-1").read_bytes() == damaged
    recorded.check_all_is_there()


def test_a_database_of_somebody_else_is_kept_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE ICLIENTS_STATIC(static_id INTEGER, client_name TEXT)")
        connection.execute("INSERT INTO ICLIENTS_STATIC VALUES(1, 'precious')")
    recorded = Recorded(path)
    recorded.write()
    assert recorded.ids == ["1B-0003"]
    aside = tmp_path / "stats.db.foreign-1"
    with closing(sqlite3.connect(aside)) as connection:
        query = "SELECT client_name FROM ICLIENTS_STATIC"
        assert connection.execute(query).fetchall() == [("precious",)]
    recorded.check_all_is_there()


def test_what_is_no_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    text = "<AMPSConfig>\n" * 1000
    path.write_text(text)
    recorded = Recorded(path)
    recorded.write()
    assert recorded.ids == ["1B-0001"]
    assert path.read_text() == text
    assert recorded.recording.history.timestamps() == recorded.stamps
    path.unlink()
    recorded.now += RETRY_INTERVAL_S
    recorded.write()
    assert recorded.ids == ["1B-0001", "1B-0002"]
    recorded.check_all_is_there()


@dataclass(frozen=True)
class _Recorder:
    """A process that records, and what it prints."""

    process: subprocess.Popen[str] | ForkServerProcess
    output: IO[str]

    def lines(self) -> Iterator[str]:
        while line := self.output.readline():
            yield line.strip()
        raise AssertionError("the recorder has ended")

    def kill(self) -> None:
        self.process.kill()
        if isinstance(self.process, ForkServerProcess):
            self.process.join()
        else:
            self.process.wait()


@contextmanager
def _recorder(how: str, path: Path) -> Iterator[_Recorder]:
    """A recorder in a fork, which has been spared most imports."""
    printed = path.with_name(f"{path.name}.printed")
    os.mkfifo(printed)
    process = context().Process(target=_record, args=(how, path, printed))
    process.start()
    with printed.open() as output:
        recorder = _Recorder(process, output)
        try:
            yield recorder
        finally:
            recorder.kill()
            printed.unlink()


def _record(how: str, path: Path, printed: Path) -> None:
    os.dup2(os.open(printed, os.O_WRONLY), 1)
    record(how, str(path))


@contextmanager
def _recorder_on(disk: SmallDisk, path: Path) -> Iterator[_Recorder]:
    """A recorder in a hurry, in a process that sees a disk."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.statistics.recorder", "hurried", str(path)],
        preexec_fn=disk,  # noqa: PLW1509 - it calls the kernel, and nothing else
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdout is not None
    with process:
        recorder = _Recorder(process, process.stdout)
        try:
            yield recorder
        finally:
            recorder.kill()


def test_kill_9_takes_nothing_that_has_been_recorded(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    said: list[int] = []
    lives = 4
    for life in range(lives):
        with _recorder("kept", path) as recorder:
            lines = recorder.lines()
            number = random.Random(life).randrange(2, 40)
            said += map(int, islice(lines, number))
            recorder.kill()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            stamps = {one for (one,) in connection.execute(f"SELECT timestamp FROM {SAMPLES}")}
            assert stamps >= set(said)
            orphans = (
                "SELECT count(*) FROM ICLIENTS_DYNAMIC"
                " WHERE static_id NOT IN (SELECT static_id FROM ICLIENTS_STATIC)"
                f" OR timestamp NOT IN (SELECT timestamp FROM {SAMPLES})"
            )
            assert connection.execute(orphans).fetchone() == (0,)
            events = [values[0] for _, values in lifetimes(connection, 100)]
            assert events == ["started"] * (life + 1)


def test_a_full_disk_costs_nothing_but_memory(tmp_path: Path) -> None:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    with small_disk(mount_point, 2) as disk:
        if disk.holder is None:
            pytest.skip("mounting is forbidden here")
        with _recorder_on(disk, mount_point / "stats.db") as recorder:
            lines = recorder.lines()
            said = {int(next(lines)) for _ in range(3)}
            disk.fill()
            for line in lines:
                if line == "1B-0001":
                    break
                said.add(int(line))
            said |= {int(next(lines)) for _ in range(10)}  # and it goes on
            disk.make_space()
            for line in lines:
                if line == "1B-0002":
                    break
                said.add(int(line))
            said.add(int(next(lines)))
            recorder.kill()
        seen = Path(f"/proc/{disk.holder}/root") / mount_point.relative_to("/")
        shutil.copytree(seen, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy" / "stats.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = {one for (one,) in connection.execute(f"SELECT timestamp FROM {SAMPLES}")}
        assert found >= said


@pytest.mark.parametrize(("how", "size"), [("hurried", 0), ("hurried", 4096), ("wide", 32_768)])
def test_an_index_that_loses_its_content_costs_nothing(tmp_path: Path, how: str, size: int) -> None:
    """What of the map the file has no more would be the end of the process."""
    path = tmp_path / "stats.db"
    with _recorder(how, path) as recorder:
        lines = recorder.lines()
        said = {int(next(lines)) for _ in range(5)}
        index = Path(f"{path}-shm")
        assert index.stat().st_size > size
        os.truncate(index, size)
        for line in lines:
            if line == "1B-0001":
                break
            said.add(int(line))
        for line in lines:
            if line == "1B-0002":
                break
            said.add(int(line))
        said |= {int(next(lines)) for _ in range(5)}
        recorder.kill()
    _check(path, said)


def test_an_index_that_loses_its_content_ends_nobody_who_reads(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    with _recorder("kept", path) as recorder:
        lines = recorder.lines()
        said = {int(next(lines)) for _ in range(5)}
        os.truncate(f"{path}-shm", 0)
        said |= {int(line) for line in iter(lambda: next(lines), "1B-0001") if line}
        assert all(next(lines) for _ in range(10)), "it goes on in memory, and is read there"
        recorder.kill()
    _check(path, said)


def _check(path: Path, said: set[int]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert said <= {one for (one,) in connection.execute(f"SELECT timestamp FROM {SAMPLES}")}
