"""Rate-limited entries: so many per cause and window, then their number."""

from __future__ import annotations

from server.util.log_protocol import ServerLog
from server.util.rate_limited_log import (
    MAX_CAUSES,
    MAX_ENTRIES_PER_MINUTE,
    MINUTE_S,
    LogWindow,
    RateLimitedLog,
)
from tests.engine.support import RecordingLog, SimulatedClock


def test_suppressed_entries_of_a_cause_are_counted_when_the_minute_is_over() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    limited = RateLimitedLog(log, clock)
    written = [limited.emit("25-0081", "host", number=number) for number in range(12)]
    assert written == [True] * MAX_ENTRIES_PER_MINUTE + [False] * 2
    assert limited.emit("25-0081", "another host", number=0)
    assert limited.emit("25-0082", "host", number=0), "entries of another kind"
    log.entries.clear()
    clock.advance(MINUTE_S)
    assert log.entries == [("01-0012", {"count": 2, "message": "25-0081", "source": "host"})]
    assert limited.emit("25-0081", "host", number=0)


def test_too_many_causes_share_one_window() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    limited = RateLimitedLog(log, clock)
    for number in range(MAX_CAUSES + MAX_ENTRIES_PER_MINUTE + 3):
        limited.emit("25-0081", number)
    assert len(log.entries) == MAX_CAUSES + MAX_ENTRIES_PER_MINUTE
    clock.advance(MINUTE_S)
    assert log.entries[-1] == ("01-0012", {"count": 3, "message": "25-0081", "source": "others"})


def test_a_limit_without_a_summary_says_whether_an_entry_is_worth_its_fields() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    limited = RateLimitedLog(log, clock, burst=1, window_s=10, summary=None)
    for _ in range(3):
        assert not limited.is_suppressed("11-0020")
        assert limited.emit("11-0020", limit=1)
        assert limited.is_suppressed("11-0020")
        assert not limited.emit("11-0020", limit=1)
        clock.advance(10)
    assert [message for message, _ in log.entries] == ["11-0020"] * 3


def test_a_cause_that_goes_on_is_only_summed_up() -> None:
    def summary(log: ServerLog, window: LogWindow) -> None:
        log.emit("1E-0010", count=window.suppressed_count, age=window.age.seconds, **window.fields)

    clock, log = SimulatedClock(), RecordingLog()
    limited = RateLimitedLog(log, clock, burst=1, summary=summary, is_continued=True)
    for minute in range(3):
        for number in range(5):
            fields: dict[str, object] = {"minute": minute, "number": number}
            limited.emit_events("1E-0006", "host", fields, events=2)
        clock.advance(MINUTE_S)
    assert log.entries == [
        ("1E-0006", {"minute": 0, "number": 0}),
        ("1E-0010", {"count": 8, "age": 60, "minute": 0, "number": 4}),
        ("1E-0010", {"count": 10, "age": 60, "minute": 1, "number": 4}),
        ("1E-0010", {"count": 10, "age": 60, "minute": 2, "number": 4}),
    ]
    clock.advance(MINUTE_S)
    log.entries.clear()
    limited.emit("1E-0006", "host")
    assert [message for message, _ in log.entries] == ["1E-0006"]


def test_entries_with_different_ids_share_a_joint_window() -> None:
    clock, log = SimulatedClock(), RecordingLog()
    limited = RateLimitedLog(log, clock, burst=2, is_joint=True)
    assert limited.emit("1F-0006", "client")
    assert limited.emit("1F-0008", "client")
    assert not limited.emit("1F-0006", "client")
    assert limited.emit("1F-0006", "another client")
