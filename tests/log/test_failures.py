"""Targets that fail or fall behind cost log entries, never the server, and the log says so."""

import os
import select
import threading
from pathlib import Path

import pytest

from server.log import event_log as log_module
from server.log.catalogue import CATALOGUE
from server.log.entry_buffer import MAX_BYTES, MAX_ENTRIES
from server.log.event_log import EventLog
from server.log.targets.memory import MemoryTarget
from tests.support.waiting import wait_until

from .support import ids, log_of, target

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


@pytest.fixture
def pipe(tmp_path: Path) -> tuple[Path, int]:
    """A log file that takes nothing unless the test reads: its path and the end to read from."""
    path = tmp_path / "stuck.log"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def drain(descriptor: int) -> "Drain":
    """Read a pipe to its end in a thread of its own."""
    os.set_blocking(descriptor, True)
    reader = Drain(descriptor)
    reader.start()
    return reader


class Drain(threading.Thread):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.data = b""

    def run(self) -> None:
        with open(self._descriptor, "rb") as file:
            self.data = file.read()


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_a_full_disk_is_said_once_and_disturbs_nothing(
    protocol: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    suffix = {"file": ".log", "gzip": ".gz"}[protocol]
    (tmp_path / f"full{suffix}").symlink_to(FULL)
    full = target(protocol, file_name=str(tmp_path / f"full{suffix}"), level="info")
    good = target(file_name=str(tmp_path / "good.log"), level="info")
    with log_of(full, good) as log:
        for number in range(3):
            log.emit("29-0103", text=str(number))
            assert log.flush()
    complaints = capfd.readouterr().err.splitlines()
    assert len(complaints) == 1
    assert complaints[0].startswith(f"ampServer: config.xml:7: the log target {tmp_path}/full")
    assert "No space left on device" in complaints[0]
    assert sorted(ids(tmp_path / "good.log")) == ["29-0103", "29-0103", "29-0103", "2C-0001"]
    assert "cannot be written: No space left on device" in (tmp_path / "good.log").read_text()


def test_a_target_that_recovers_says_how_much_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.symlink_to(FULL)
    with log_of(target(file_name=str(path), level="info")) as log:
        for number in range(5):  # the first is kept back, the others are refused
            log.emit("29-0103", text=str(number))
            assert log.flush()
        path.unlink()
        log.rotate()
        log.emit("29-0103", text="back")
    assert ids(path) == ["01-0001", "29-0103"]
    assert "01-0001 4 log entries lost before this line" in path.read_text()
    assert path.read_text().endswith("back\n")
    assert capfd.readouterr().err.count("cannot be written") == 1


def test_a_directory_that_disappears_is_survived(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    spec = target(file_name=str(directory / "a-%n"), level="info", rotation_threshold=1)
    with log_of(spec) as log:
        log.emit("29-0103", text="one")
        assert log.flush()
        (directory / "a-00000.log").unlink()
        directory.rmdir()
        directory.touch()  # a file in its place, so that it cannot be made again
        log.emit("29-0103", text="two")
        assert log.flush()
        directory.unlink()
        log.emit("29-0103", text="three")
    assert capfd.readouterr().err.count("File exists") == 1
    text = "".join(path.read_text() for path in sorted(directory.iterdir()))
    assert "01-0001 1 log entries lost" in text
    assert "three" in text
    assert "two" not in text


def block_writer(log: EventLog, descriptor: int) -> None:
    """Stall the target with an entry that the pipe cannot take: everything after it waits."""
    log.emit("29-0103", text="x" * 1_000_000)
    select.select([descriptor], [], [])


def wait_until_queued(log: EventLog, beside: Path, mark: str = "queued") -> None:
    """Log one more entry, and wait until all targets have it in their queues."""
    log.emit("29-0103", text=mark)
    wait_until(lambda: f"29-0103 {mark}\n" in beside.read_text())


def test_more_than_can_be_written_is_counted_and_said(
    pipe: tuple[Path, int], tmp_path: Path
) -> None:
    path, descriptor = pipe
    beside = tmp_path / "beside.log"
    specs = [target(file_name=str(each), level="info") for each in (path, beside)]
    with log_of(*specs) as log:
        block_writer(log, descriptor)
        for number in range(MAX_ENTRIES + 5_000):
            log.emit("29-0103", text=f"number {number}")
        wait_until_queued(log, beside)
        reader = drain(descriptor)
        wait_until(log.flush)  # which has its own limit, made for a server that stops
        log.emit("29-0103", text="afterwards")
    reader.join()
    last = f"number {MAX_ENTRIES - 2}"  # the entry that is being written counts
    lines = reader.data.decode().splitlines()
    assert [line.partition(": ")[2] for line in lines[-3:]] == [
        f"29-0103 {last}",
        f"01-0001 {CATALOGUE['01-0001'].template.render({'count': 5_002})}",
        "29-0103 afterwards",
    ]


def test_large_entries_are_bounded_by_their_bytes(pipe: tuple[Path, int], tmp_path: Path) -> None:
    path, descriptor = pipe
    beside = tmp_path / "beside.log"
    with log_of(
        target(file_name=str(path), level="trace", exclude_errors=("29-0103",)),
        target(file_name=str(beside), level="info"),
    ) as log:
        log.emit("12-0001", client="", header=b"", body=b"x" * 1_000_000)
        select.select([descriptor], [], [])
        for number in range(100):
            log.emit("12-0001", client="", header=b"", body=b"x" * (MAX_BYTES // 64))
            wait_until_queued(log, beside, f"queued {number}")
        reader = drain(descriptor)
    reader.join()
    written = reader.data.count(b" 12-0001 ")
    assert written <= 64
    assert f"01-0001 {101 - written} log entries lost".encode() in reader.data


def test_a_stalled_target_silences_no_other(
    pipe: tuple[Path, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, descriptor = pipe
    (tmp_path / "full.log").symlink_to(FULL)
    good = tmp_path / "good.log"
    specs = (
        target(file_name=str(path), level="info"),
        target(file_name=str(tmp_path / "full"), level="info"),
        target(file_name=str(good), level="info"),
    )
    recent = MemoryTarget()
    with log_of(*specs, recent=recent) as log:
        block_writer(log, descriptor)
        for _ in range(MAX_ENTRIES):
            log.emit("29-0103", text="")
        log.emit("29-0103", text="afterwards")
        wait_until(lambda: "afterwards" in good.read_text())
        wait_until(lambda: any(b"afterwards" in kept.line.text for kept in recent.entries_after(0)))
        assert ids(good).count("2C-0001") == 2
        assert ids(good).count("29-0103") == MAX_ENTRIES + 2
        reader = drain(descriptor)
    reader.join()
    assert b"01-0001 3 log entries lost" in reader.data
    complaints = capfd.readouterr().err
    assert complaints.count(f"{path} cannot be written: it takes no data") == 1


def test_only_targets_that_lost_entries_say_so(pipe: tuple[Path, int], tmp_path: Path) -> None:
    path, descriptor = pipe
    grave = target(file_name=str(tmp_path / "grave"), level="warning")
    beside = target(file_name=str(tmp_path / "beside"), level="info")
    with log_of(target(file_name=str(path), level="info"), grave, beside) as log:
        block_writer(log, descriptor)
        for _ in range(MAX_ENTRIES - 1):
            log.emit("29-0103", text="")
        wait_until_queued(log, tmp_path / "beside.log")
        reader = drain(descriptor)
    reader.join()
    assert b"01-0001 1 log entries" in reader.data
    assert ids(tmp_path / "grave.log") == ["2C-0001"]


def test_a_target_that_excludes_the_notice_does_not_get_it(
    pipe: tuple[Path, int], tmp_path: Path
) -> None:
    path, descriptor = pipe
    beside = tmp_path / "beside.log"
    spec = target(file_name=str(path), level="info", exclude_errors=("01-0001",))
    with log_of(spec, target(file_name=str(beside), level="info")) as log:
        block_writer(log, descriptor)
        for _ in range(MAX_ENTRIES):
            log.emit("29-0103", text="")
        wait_until_queued(log, beside)
        reader = drain(descriptor)
    reader.join()
    assert reader.data.count(b" 29-0103 ") == MAX_ENTRIES
    assert b"01-0001" not in reader.data


def test_closing_gives_up_on_a_target_that_takes_nothing(
    pipe: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path, descriptor = pipe
    monkeypatch.setattr(log_module, "WAIT_SECONDS", 0.05)
    with log_of(target(file_name=str(path), level="info")) as log:
        log.emit("29-0103", text="x" * 1_000_000)
        assert not log.flush()
    err = capfd.readouterr().err
    assert "could not be written to its end" in err
    assert f"these targets take no data: {path}" in err
    drain(descriptor).join()
