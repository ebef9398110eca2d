"""The system logger as a target, with a socket of the test in the place of the daemon's."""

import os
import re
import socket
import syslog
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.log.event_log import EventLog
from server.log.levels import Level
from server.log.targets import LogTargetError
from server.log.targets.syslog import MAX_TEXT
from tests.support.waiting import WAIT_SECONDS

from .support import ONE_PER_LEVEL, log_of, target


class Daemon:
    """Listens as syslogd does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(WAIT_SECONDS)

    def receive(self) -> str:
        return self._socket.recv(1 << 20).decode()

    def stop(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    started = Daemon(tmp_path / "log")
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("level", "severity"),
    [
        (Level.TRACE, syslog.LOG_DEBUG),
        (Level.INFO, syslog.LOG_INFO),
        (Level.WARNING, syslog.LOG_WARNING),
        (Level.ERROR, syslog.LOG_ERR),
        (Level.CRITICAL, syslog.LOG_CRIT),
        (Level.EMERGENCY, syslog.LOG_EMERG),
    ],
)
def test_levels_become_severities(level: Level, severity: int, daemon: Daemon) -> None:
    with log_of(target("syslog", level="developer"), syslog_address=str(daemon.path)) as log:
        log.emit(ONE_PER_LEVEL[level])
        assert daemon.receive().startswith(f"<{syslog.LOG_USER | severity}>")


def test_a_message_has_the_form_of_the_system_logger_and_the_line_of_the_log(
    daemon: Daemon,
) -> None:
    with log_of(target("syslog", level="info"), syslog_address=str(daemon.path)) as log:
        log.emit("00-0015", seconds=0)
        assert daemon.receive() == (
            "<14>Jan  1 00:00:00 unit-1: 2024-01-01T00:00:00.0000000+00:00 [1] info: 00-0015 "
            "AMPS initialization completed (0 seconds)."
        )


def test_identity_process_and_facility_are_as_configured(daemon: Daemon) -> None:
    spec = target(
        "syslog",
        level="critical",
        ident="\\amps dma",
        options=("LOG_CONS", "LOG_NDELAY", "LOG_PID"),
        facility="LOG_LOCAL3",
    )
    with log_of(spec, syslog_address=str(daemon.path)) as log:
        log.emit("01-0022", path="/tmp/x.dmp")
        message = daemon.receive()
    assert message.startswith(f"<{syslog.LOG_LOCAL3 | syslog.LOG_CRIT}>")
    assert f" \\amps dma[{os.getpid()}]: 2024-" in message


def test_an_entry_of_several_lines_is_one_message(daemon: Daemon) -> None:
    with log_of(target("syslog", level="info"), syslog_address=str(daemon.path)) as log:
        log.emit("07-0012", client="c", transport="t", address="127.0.0.1:5000")
        assert daemon.receive().endswith("\n remote address = 127.0.0.1:5000")


def test_an_entry_too_large_for_a_message_is_cut(daemon: Daemon) -> None:
    with log_of(target("syslog", level="info"), syslog_address=str(daemon.path)) as log:
        log.emit("29-0103", text="x" * 1_000_000)
        message = daemon.receive()
    assert message.endswith("xxx [cut]")
    assert MAX_TEXT < len(message) < MAX_TEXT + 100


def test_with_log_perror_entries_go_to_standard_error_too(
    daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = target("syslog", level="info", options=("LOG_PERROR",))
    with log_of(spec, syslog_address=str(daemon.path)) as log:
        log.emit("29-0103", text="twice")
        daemon.receive()
    assert re.search(r"info: 29-0103 twice$", capfd.readouterr().err)


def test_a_daemon_that_is_restarted_is_found_again(daemon: Daemon) -> None:
    with log_of(target("syslog", level="info"), syslog_address=str(daemon.path)) as log:
        log.emit("29-0103", text="before")
        assert daemon.receive().endswith("before")
        daemon.stop()
        restarted = Daemon(daemon.path)
        log.emit("29-0103", text="after")
        assert restarted.receive().endswith("after")
        restarted.stop()


def test_a_daemon_that_is_missing_is_said_once_and_found_when_it_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = tmp_path / "log"
    with log_of(target("syslog", level="info"), syslog_address=str(address)) as log:
        for _ in range(3):
            log.emit("29-0103", text="lost")
            assert log.flush()
        started = Daemon(address)
        log.emit("29-0103", text="found")
        assert "01-0001 3 log entries lost" in started.receive()
        assert started.receive().endswith("found")
        started.stop()
    assert capfd.readouterr().err.count("cannot be written") == 1


def test_connecting_at_once_to_a_missing_daemon_is_remarked_on_but_does_not_stop_the_start(
    tmp_path: Path,
) -> None:
    spec = target("syslog", level="info", options=("LOG_NDELAY",))
    file = target(file_name=str(tmp_path / "a"), level="info", exclude_errors=("2C-0001",))
    with log_of(spec, file, syslog_address=str(tmp_path / "log")):
        pass
    assert (
        "warning: 00-0009 config.xml:7 Target/Protocol: the system logger does not answer"
        in (tmp_path / "a.log").read_text()
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"options": ("LOG_PID", "LOG_LOUD")},
            "Target/Options: 'LOG_LOUD' is not a syslog option; expected some of LOG_CONS,",
        ),
        (
            {"facility": "LOG_MAIL"},
            "Target/Facility: 'LOG_MAIL' is not a syslog facility; expected one of LOG_USER,",
        ),
    ],
)
def test_mistakes_in_the_configuration_are_located(
    settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(LogTargetError) as refused:
        EventLog([target("syslog", level="info", **settings)], "unit-1")
    assert str(refused.value).startswith(f"config.xml:7: error: {sentence}")
