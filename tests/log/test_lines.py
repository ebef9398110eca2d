"""The form of a line: time stamp, thread, level, id, text; and entries of several lines."""

import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from server.log.catalogue import CATALOGUE

from .support import LINE, NEW_YEAR, SECOND, Clock, log_of, target


@pytest.mark.parametrize(
    ("zone", "nanoseconds", "stamp"),
    [
        ("UTC", 0, "2024-01-01T00:00:00.0000000+00:00"),
        ("UTC", 99, "2024-01-01T00:00:00.0000000+00:00"),
        ("UTC", 344_251_000, "2024-01-01T00:00:00.3442510+00:00"),
        ("UTC", 999_999_999, "2024-01-01T00:00:00.9999999+00:00"),
        ("UTC", -1, "2023-12-31T23:59:59.9999999+00:00"),
        ("America/Los_Angeles", 100, "2023-12-31T16:00:00.0000001-08:00"),
        ("America/Los_Angeles", 182 * 86_400 * SECOND, "2024-06-30T17:00:00.0000000-07:00"),
        ("Asia/Kolkata", 0, "2024-01-01T05:30:00.0000000+05:30"),
        ("America/St_Johns", 0, "2023-12-31T20:30:00.0000000-03:30"),
    ],
)
def test_time_stamps_are_local_with_their_offset(
    zone: str, nanoseconds: int, stamp: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    clock = Clock()
    clock.now = NEW_YEAR + nanoseconds
    with log_of(target(file_name=str(tmp_path / "a"), level="info"), clock=clock) as log:
        log.emit("00-0015", seconds=0)
    assert (tmp_path / "a.log").read_text() == (
        f"{stamp} [1] info: 00-0015 AMPS initialization completed (0 seconds).\n"
    )


def test_the_offset_changes_with_daylight_saving_while_the_log_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    clock = Clock()
    clock.now = 1_711_846_799_000_000_000  # 2024-03-31T00:59:59Z, one second before the change
    with log_of(target(file_name=str(tmp_path / "a"), level="info"), clock=clock) as log:
        log.emit("00-0015", seconds=0)
        clock.now += SECOND
        log.emit("00-0015", seconds=0)
    stamps = [line.split()[0] for line in (tmp_path / "a.log").read_text().splitlines()]
    assert stamps == ["2024-03-31T01:59:59.0000000+01:00", "2024-03-31T03:00:00.0000000+02:00"]


def test_further_lines_of_an_entry_follow_as_they_are(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        log.emit(
            "1F-0004",
            connection="AMPS-any-tcp-1",
            client="pubber",
            user="",
            name_hash=7094790850998930143,
            version="5.2.1.1:python",
            last_acked=0,
            last_logged=0,
            correlation_id=None,
        )
    assert (tmp_path / "a.log").read_text() == (
        "2024-01-01T00:00:00.0000000+00:00 [1] info: 1F-0004 [AMPS-any-tcp-1] "
        "AMPS client session logon for: pubber\n"
        "client session info:\n"
        " client authid           = ''\n"
        " client name hash        = 7094790850998930143\n"
        " client version          = 5.2.1.1:python\n"
        " last acked client seq   = 0\n"
        " last txn log client seq = 0\n"
        " correlation id          = \n"
    )


def test_a_client_cannot_make_up_entries(tmp_path: Path) -> None:
    forged = "x\n2024-01-01T00:00:00.0000000+00:00 [1] critical: 01-0022 made up"
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        log.emit("07-0013", client=forged)
        log.emit("07-0013", client=forged.encode())
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert [bool(LINE.match(line)) for line in lines] == [True, False, True, False]


def test_a_missing_field_does_not_cost_the_entry(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        log.emit("00-0015")
    assert "00-0015 AMPS initialization completed (? seconds)." in (tmp_path / "a.log").read_text()


def test_an_id_outside_the_catalogue_does_not_cost_the_entry(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        log.emit("99-" + "0001", client="c")
    assert "warning: 01-0002 " in (tmp_path / "a.log").read_text()
    assert "99-0001 {'client': 'c'}" in (tmp_path / "a.log").read_text()


def test_every_message_can_be_written_with_any_value(tmp_path: Path) -> None:
    fields = {
        message_id: message.template.required | message.template.optional
        for message_id, message in CATALOGUE.items()
    }
    with log_of(target(file_name=str(tmp_path / "a"), include_errors=tuple(CATALOGUE))) as log:
        for message_id, names in fields.items():
            log.emit(message_id, **dict.fromkeys(names, b"v\xff"))
    _, *entries = re.split(r"(?m)^(?=\d{4}-)", (tmp_path / "a.log").read_text())
    for (message_id, names), entry in zip(fields.items(), entries, strict=True):
        assert f" {message_id} " in entry
        assert entry.count("v\\xff") >= len(names), entry


def test_threads_log_without_losing_reordering_or_mixing_entries(tmp_path: Path) -> None:
    threads, entries = 8, 2_000
    start = threading.Barrier(threads)
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:

        def work(name: int) -> None:
            start.wait()
            for number in range(entries):
                log.emit("29-0103", text=f"{name} {number}")

        workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert log.flush()
        assert log.targets[0].entries_written == threads * entries
    found = [LINE.fullmatch(line) for line in (tmp_path / "a.log").read_text().splitlines()]
    pairs = [(match["thread"], *match["text"].split()) for match in found if match]
    assert len(pairs) == len(found) == threads * entries
    for name in range(threads):
        own = [(thread, int(number)) for thread, worker, number in pairs if worker == str(name)]
        assert [number for _, number in own] == list(range(entries))
        assert len({thread for thread, _ in own}) == 1
    assert len(Counter(thread for thread, *_ in pairs)) == threads


def test_the_thread_that_makes_the_log_is_number_one(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        helper = threading.Thread(target=lambda: log.emit("29-0103", text="helper"))
        helper.start()
        helper.join()
        log.emit("29-0103", text="main")
    helper_line, main_line = (tmp_path / "a.log").read_text().splitlines()
    assert "[1]" not in helper_line
    assert "[1]" in main_line


def test_what_is_logged_after_close_is_ignored(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="info")) as log:
        log.emit("29-0103", text="before")
        log.close()
        log.emit("29-0103", text="after")
        assert not log.enabled("29-0103")
        assert log.flush()
        log.rotate()
    assert "before" in (tmp_path / "a.log").read_text()
    assert "after" not in (tmp_path / "a.log").read_text()


def test_a_log_without_targets_takes_everything_and_writes_nothing() -> None:
    with log_of() as log:
        log.emit("00-0015", seconds=0)
        assert not log.enabled("00-0015")
        assert log.flush()
