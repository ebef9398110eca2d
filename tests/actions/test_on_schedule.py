"""Schedules in simulated time: across changes of clocks, leap days, and clocks that jump."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from actions import on_schedule
from actions.module import ProvisionFailed
from actions.on_schedule import OnSchedule
from tests.actions.support import Bench, options
from tests.core.support import SimulatedClock


class ClockThatIsSet(SimulatedClock):
    """A wall clock that is set while timers, which are by another clock, go on."""

    offset = 0.0

    def now(self) -> float:
        """The time on the wall."""
        return self.time + self.offset


class Firings:
    """An action that only notes when it ran."""

    title = "noted"
    is_busy = False

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self.at: list[str] = []
        self.causes: set[str | None] = set()

    def post(self, values: Mapping[str, bytes], cause: str | None = None) -> None:
        """Note it."""
        self.causes.add(cause)
        moment = datetime.fromtimestamp(self._clock.time, UTC)
        self.at.append(moment.strftime("%Y-%m-%d %H:%M:%S"))

    async def perform(self, values: Mapping[str, bytes]) -> None:
        """Not asked of schedules."""
        raise NotImplementedError


def run(
    monkeypatch: pytest.MonkeyPatch, start: str, days: float, **given: str | list[str]
) -> Firings:

    monkeypatch.setattr(on_schedule, "local_zone", lambda: ZoneInfo("America/New_York"))
    bench = Bench()
    clock = bench.core.clock
    clock.time = datetime.fromisoformat(start).timestamp()
    firings = Firings(clock)
    trigger = OnSchedule(options(given))
    trigger.provision(bench.services, firings)
    trigger.start()
    clock.advance(days * 86_400)
    trigger.close()
    clock.advance(10 * 86_400)
    return firings


CASES = [
    # option, start, days, firings in UTC
    (
        {"Every": "8h"},
        "2026-01-01T00:00:00+00:00",
        1,
        ["2026-01-01 08:00:00", "2026-01-01 16:00:00", "2026-01-02 00:00:00"],
    ),
    (  # clocks go forward: half past two does not exist that night
        {"Every": "02:30"},
        "2026-03-07T00:00:00-05:00",
        2.5,
        ["2026-03-07 07:30:00", "2026-03-08 07:30:00", "2026-03-09 06:30:00"],
    ),
    (  # clocks go back: half past one happens twice, the schedule does not
        {"Every": "01:30"},
        "2026-10-31T00:00:00-04:00",
        2.5,
        ["2026-10-31 05:30:00", "2026-11-01 05:30:00", "2026-11-02 06:30:00"],
    ),
    ({"Every": "Saturday at 00:30Z"}, "2026-01-01T00:00:00+00:00", 8, ["2026-01-03 00:30:00"]),
    ({"Crontab": "0 12 29 2 *"}, "2028-02-01T00:00:00+00:00", 60, ["2028-02-29 17:00:00"]),
    ({"Crontab": "0 12 29 2 *"}, "2027-02-01T00:00:00+00:00", 60, []),
]


@pytest.mark.parametrize(("given", "start", "days", "expected"), CASES)
def test_firings(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str | list[str]],
    start: str,
    days: float,
    expected: list[str],
) -> None:
    assert run(monkeypatch, start, days, **given).at == expected


def test_the_name_of_a_schedule_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "2026-01-01T00:00:00+00:00"
    assert run(monkeypatch, start, 1, Every="1h", Name="hourly").causes == {"schedule hourly"}
    assert run(monkeypatch, start, 1, Every="1h").causes == {"schedule 1h"}
    assert run(monkeypatch, start, 1, Crontab="0 * * * *").causes == {"schedule 0 * * * *"}


def test_a_clock_that_jumps_makes_one_firing_and_no_more() -> None:
    bench = Bench()
    bench.core.engine.clock = clock = ClockThatIsSet()
    firings = Firings(clock)
    trigger = OnSchedule(options({"Every": "10m"}))
    trigger.provision(bench.services, firings)
    trigger.start()
    clock.offset = 86_400.0
    clock.advance(120)
    assert len(firings.at) == 1
    clock.advance(600)
    assert len(firings.at) == 2


def test_what_lies_beyond_the_calendar_is_refused() -> None:

    bench = Bench()
    trigger = OnSchedule(options({"Every": "900000000d"}))
    with pytest.raises(ProvisionFailed):
        trigger.provision(bench.services, Firings(bench.core.clock))
