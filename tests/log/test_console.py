"""Standard output and standard error as targets."""

import pytest

from .support import log_of, target


def test_entries_go_to_the_stream_that_is_configured(capfd: pytest.CaptureFixture[str]) -> None:
    """Example of the guide: info and warning to one stream, what is graver to the other."""
    out = target("stdout", levels=("info", "warning"))
    err = target("stderr", level="error")
    with log_of(out, err) as log:
        log.emit("00-0015", seconds=0)
        log.emit("70-0011", client="c")
        log.emit("70-0004", client="c")
        log.emit("12-0001", client="c", header=b"{}", body=b"")
    captured = capfd.readouterr()
    assert [line.split()[3] for line in captured.out.splitlines()] == ["00-0015", "70-0011"]
    assert [line.split()[3] for line in captured.err.splitlines()] == ["70-0004"]


def test_the_streams_stay_open_when_the_log_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    with log_of(target("stdout", level="info")):
        pass
    print("still here")
    assert capfd.readouterr().out == "still here\n"


def test_rotating_the_console_does_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with log_of(target("stdout", level="info")) as log:
        log.emit("29-0103", text="one")
        log.rotate()
        log.emit("29-0103", text="two")
    assert [line[-3:] for line in capfd.readouterr().out.splitlines()] == ["one", "two"]
