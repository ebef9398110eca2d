"""File and gzip targets: names, appending, truncating, rotation, and what is in the files."""

import gzip
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config_schema.spec import LogTargetSpec
from server.log.event_log import EventLog
from server.log.targets import LogTargetError
from server.log.targets.file import file_name
from tests.support.chances import examples
from tests.support.server import environment
from tests.support.waiting import wait_until

from .support import NEW_YEAR, SECOND, Clock, log_of, target

PREFIX = "2024-01-01T00:00:00.0000000+00:00 [1] info: 29-0103 "
LINE_SIZE = len(PREFIX) + 11
"""The size of a line with a text of ten bytes."""


def read(path: Path) -> str:
    """The text of a log file, compressed or not."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def texts(path: Path) -> list[str]:
    """The texts of the echo messages in a log file."""
    return [line.removeprefix(PREFIX) for line in read(path).splitlines() if PREFIX in line]


def echo(log: EventLog, *messages: str) -> None:
    for message in messages:
        log.emit("29-0103", text=message)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("mask", "suffix", "rotation", "name"),
    [
        ("amps.log", ".log", 0, "amps.log"),
        ("amps", ".log", 0, "amps.log"),
        ("amps.out", ".log", 0, "amps.out.log"),
        ("trace.log.gz", ".gz", 0, "trace.log.gz"),
        ("trace.log", ".gz", 0, "trace.log.gz"),
        ("amps-%n.log", ".log", 0, "amps-00000.log"),
        ("amps-%n.log", ".log", 12, "amps-00012.log"),
        ("amps-%n.log", ".log", 123_456, "amps-123456.log"),
        ("./logs/%Y%m%d%H%M%S-%n.log", ".log", 1, "./logs/20240101000000-00001.log"),
        ("%Y-%m-%dT%H:%M:%S.log", ".log", 0, "2024-01-01T00:00:00.log"),
        ("%a-%j.log", ".log", 0, "Mon-001.log"),
        ("100%%n.log", ".log", 0, "100%n.log"),
        ("%n%n.log", ".log", 3, "0000300003.log"),
    ],
)
def test_masks_make_names(mask: str, suffix: str, rotation: int, name: str) -> None:
    assert file_name(mask, suffix, rotation, NEW_YEAR) == name


def test_names_are_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert file_name("%Y-%m-%d-%H.log", ".log", 0, NEW_YEAR) == "2023-12-31-19.log"


def test_without_a_file_name_the_time_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with log_of(target(level="info")) as log:
        echo(log, "hello")
    assert names(tmp_path) == ["2024-01-01T000000.log"]


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_without_a_threshold_the_next_start_appends(protocol: str, tmp_path: Path) -> None:
    spec = target(protocol, file_name=str(tmp_path / "amps"), level="info")
    for message in ("first", "second", "third"):
        with log_of(spec) as log:
            echo(log, message)
    [path] = tmp_path.iterdir()
    assert texts(path) == ["first", "second", "third"]


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_with_a_threshold_the_next_start_appends_too_and_counts_what_is_there(
    protocol: str, tmp_path: Path
) -> None:
    spec = target(
        protocol,
        file_name=str(tmp_path / "amps-%n"),
        level="info",
        rotation_threshold=2 * LINE_SIZE,
    )
    for message in ("message 00", "message 01", "message 02"):
        with log_of(spec) as log:
            echo(log, message)
    first, second = sorted(tmp_path.iterdir())
    assert texts(first) == ["message 00", "message 01"]
    assert texts(second) == ["message 02"]


def test_a_start_takes_no_log_away_before_it_has_succeeded(tmp_path: Path) -> None:
    """What the next file in the sequence holds may be the log of the instance that runs."""
    spec = target(file_name=str(tmp_path / "a-%n"), level="info", rotation_threshold=LINE_SIZE)
    with log_of(spec) as log:
        echo(log, "message 00", "message 01")
    log = EventLog([spec], "unit-1", Clock())
    echo(log, "message 02", "message 03")
    log.close()
    assert texts(tmp_path / "a-00000.log") == ["message 00", "message 02", "message 03"]
    assert texts(tmp_path / "a-00001.log") == ["message 01"]


def test_a_compressed_log_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    """Two writers would make it unreadable, and what looks cut short is only unfinished."""
    spec = target("gzip", file_name=str(tmp_path / "a"), level="info")
    with log_of(spec) as log:
        echo(log, "one")
        assert log.flush()
        with pytest.raises(LogTargetError, match=r"cannot be opened: another log is being written"):
            EventLog([spec], "unit-2")
        echo(log, "two")
    assert texts(tmp_path / "a.gz") == ["one", "two"]


@pytest.mark.parametrize(("protocol", "suffix"), [("file", ".log"), ("gzip", ".gz")])
def test_a_file_that_would_exceed_the_threshold_is_followed_by_the_next(
    protocol: str, suffix: str, tmp_path: Path
) -> None:
    """The threshold counts uncompressed bytes for both protocols."""
    spec = target(
        protocol,
        file_name=str(tmp_path / f"a-%n{suffix}"),
        level="info",
        rotation_threshold=2 * LINE_SIZE,
    )
    messages = [f"message {number:02d}" for number in range(5)]
    with log_of(spec) as log:
        echo(log, *messages)
    assert names(tmp_path) == [f"a-0000{number}{suffix}" for number in range(3)]
    assert texts(tmp_path / f"a-00000{suffix}") == messages[:2]
    assert texts(tmp_path / f"a-00001{suffix}") == messages[2:4]
    assert texts(tmp_path / f"a-00002{suffix}") == messages[4:]


def test_an_entry_larger_than_the_threshold_is_written_whole(tmp_path: Path) -> None:
    spec = target(file_name=str(tmp_path / "a-%n"), level="info", rotation_threshold=10)
    with log_of(spec) as log:
        echo(log, "x" * 1_000, "y")
    assert texts(tmp_path / "a-00000.log") == ["x" * 1_000]
    assert texts(tmp_path / "a-00001.log") == ["y"]


def test_the_next_file_is_named_after_the_time_of_its_first_entry(tmp_path: Path) -> None:
    clock = Clock()
    spec = target(file_name=str(tmp_path / "%H%M%S"), level="info", rotation_threshold=LINE_SIZE)
    with log_of(spec, clock=clock) as log:
        echo(log, "message 00")
        clock.now += 600 * SECOND
        echo(log, "message 01")
    assert names(tmp_path) == ["000000.log", "001000.log"]


def test_a_rotation_to_the_same_name_truncates(tmp_path: Path) -> None:
    spec = target(file_name=str(tmp_path / "a"), level="info", rotation_threshold=2 * LINE_SIZE)
    with log_of(spec) as log:
        echo(log, "message 00", "message 01", "message 02")
    assert texts(tmp_path / "a.log") == ["message 02"]


@settings(max_examples=examples(40, 8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    threshold=st.integers(1, 1_000),
    sizes=st.lists(st.integers(0, 300), max_size=30),
    protocol=st.sampled_from(["file", "gzip"]),
)
def test_rotation_loses_nothing_and_keeps_to_the_threshold(
    threshold: int, sizes: list[int], protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("rotation")
    spec = target(
        protocol, file_name=str(directory / "a-%n"), level="info", rotation_threshold=threshold
    )
    messages = [f"{number:03d}{'x' * size}" for number, size in enumerate(sizes)]
    with log_of(spec) as log:
        echo(log, *messages)
    files = [directory / name for name in names(directory)]
    assert [message for path in files for message in texts(path)] == messages
    for path in files:
        assert len(read(path)) <= threshold or len(texts(path)) == 1


@pytest.mark.parametrize("threshold", [None, 1_000_000])
def test_an_explicit_rotation_follows_what_was_logged_before_it(
    threshold: int | None, tmp_path: Path
) -> None:
    counted = target(file_name=str(tmp_path / "a-%n"), level="info", rotation_threshold=threshold)
    zipped = target("gzip", file_name=str(tmp_path / "b-%n"), level="info")
    console = target("stderr", include_errors=("FF-0002",))
    with log_of(counted, zipped, console) as log:
        echo(log, "old")
        log.rotate()
        echo(log, "new")
        assert log.flush()
    assert texts(tmp_path / "a-00000.log") == texts(tmp_path / "b-00000.gz") == ["old"]
    assert texts(tmp_path / "a-00001.log") == texts(tmp_path / "b-00001.gz") == ["new"]


def test_a_file_that_was_moved_away_is_begun_again_by_a_rotation(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        echo(log, "old")
        assert log.flush()
        (tmp_path / "a.log").rename(tmp_path / "a.log.1")
        log.rotate()
        echo(log, "new")
    assert texts(tmp_path / "a.log.1") == ["old"]
    assert texts(tmp_path / "a.log") == ["new"]


def test_a_compressed_log_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with log_of(target("gzip", file_name=str(tmp_path / "a"), level="info")) as log:
        echo(log, "one", "two")
        assert log.flush()
        unfinished = zlib.decompressobj(31).decompress((tmp_path / "a.gz").read_bytes())
        assert unfinished.decode() == f"{PREFIX}one\n{PREFIX}two\n"


@pytest.mark.parametrize("lost", [0, 1, 7, 20, 10_000])
def test_a_compressed_log_that_a_crash_cut_short_is_completed_before_it_is_appended_to(
    lost: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.gz"
    spec = target("gzip", file_name=str(path), level="info")
    with log_of(spec) as log:
        echo(log, *(f"message {number}" for number in range(100)))
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - lost)])
    with log_of(spec) as log:
        echo(log, "afterwards")
    found = read(path)
    assert found.endswith(f"{PREFIX}afterwards\n")
    survived = "".join(f"{PREFIX}message {number}\n" for number in range(100))
    before = found.removesuffix(f"{PREFIX}afterwards\n")
    assert before.endswith("\n") or not before
    assert survived.startswith(before.removesuffix("\n"))
    assert before == survived or lost > 8  # the last eight bytes are a checksum
    assert names(tmp_path) == ["a.gz"]


def test_a_file_that_is_not_gzip_is_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"this is plain text")
    with pytest.raises(LogTargetError, match=r"cannot be opened: it exists and is not a gzip file"):
        EventLog([target("gzip", file_name=str(tmp_path / "a"), level="info")], "unit-1")
    assert (tmp_path / "a.gz").read_bytes() == b"this is plain text"


def test_entries_survive_the_death_of_the_process(tmp_path: Path) -> None:
    """Whatever has been flushed is in the files when the process is killed."""
    program = """
import os, signal
from tests.log.support import target
from server.log.event_log import EventLog
from tests.support.chances import examples
log = EventLog([target("file", file_name="a", level="info"),
                target("gzip", file_name="b", level="info")], "unit-1")
log.emit("29-0103", text="last words")
log.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert "last words" in (tmp_path / "a.log").read_text()
    assert b"last words" in zlib.decompressobj(31).decompress((tmp_path / "b.gz").read_bytes())


def test_floods_of_entries_are_written_without_anybody_asking(tmp_path: Path) -> None:
    expected: list[str] = []
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        for flood in range(3):
            entries = [f"{flood} {number}" for number in range(1_000)]
            echo(log, *entries)
            expected.extend(entries)
            wait_until(lambda: texts(tmp_path / "a.log")[-1:] == expected[-1:])
        assert texts(tmp_path / "a.log") == expected


def test_counters_tell_what_was_written(tmp_path: Path) -> None:
    with log_of(target("gzip", file_name=str(tmp_path / "a"), level="info")) as log:
        echo(log, "message 00", "message 01")
        assert log.flush()
        assert log.targets[0].entries_written == 2
        assert log.targets[0].bytes_written == 2 * LINE_SIZE


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_missing_directories_are_made(protocol: str, tmp_path: Path) -> None:
    """At the start, and at a rotation where the name has another date or number."""
    mask = tmp_path / "logs" / "%n" / "a"
    with log_of(target(protocol, file_name=str(mask), level="info")) as log:
        for number in range(2):
            assert log.flush()
            directory = tmp_path / "logs" / f"0000{number}"
            assert [path.stem for path in directory.iterdir()] == ["a"]
            assert directory.stat().st_mode & 0o027 == 0
            log.rotate()


@pytest.mark.parametrize("protocol", ["file", "gzip"])
def test_a_directory_that_cannot_be_made_is_a_located_problem_of_the_configuration(
    protocol: str, tmp_path: Path
) -> None:
    (tmp_path / "logs").touch()
    spec: LogTargetSpec = target(protocol, file_name=str(tmp_path / "logs" / "a"), level="info")
    with pytest.raises(LogTargetError) as refused:
        EventLog([spec], "unit-1")
    problem = f"the directory {tmp_path / 'logs'} of a log file cannot be made: File exists"
    assert str(refused.value).startswith(f"config.xml:7: error: Target/FileName: {problem}")


def test_a_name_that_is_a_directory_is_a_located_problem_of_the_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.log").mkdir()
    with pytest.raises(LogTargetError, match=r"config.xml:7: error: Target/FileName: .*directory"):
        EventLog([target(file_name=str(tmp_path / "a"), level="info")], "unit-1")
