"""Schedules in simulated time: across changes of clocks, leap days, and clocks that jump."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from actions import on_schedule
from actions.action import Action
from actions.module import ModuleProvisionError
from actions.on_schedule import OnSchedule
from tests.actions.support import Bench, options
from tests.engine.support import SimulatedClock


class Firings(Action):
    """An action that only notes when it ran."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.name = "noted"
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


HOUR = 3600

STEPS = [
    # option, start in local time, steps as seconds after the start and seconds of the step, runs
    # in seconds after the start, up to two hours after it
    ({"Every": "30m"}, "12:10", [(60, -HOUR)], [1800, 3600, 5400, 7200]),
    ({"Every": "30m"}, "12:10", [(60, 24 * HOUR)], [1800, 3600, 5400, 7200]),
    ({"Every": "30m"}, "12:10", [(60, -24 * HOUR), (90, 24 * HOUR)], [1800, 3600, 5400, 7200]),
    ({"Every": "12:30"}, "12:10", [(60, HOUR)], [60]),  # skipped: runs at once, and once
    ({"Every": "12:30"}, "12:10", [(60, 5 * HOUR)], []),  # the clock was wrong: nothing is made up
    ({"Every": "12:30"}, "12:10", [(60, -HOUR)], [1200 + HOUR]),
    ({"Every": "12:30"}, "12:10", [(1500, -HOUR)], [1200]),  # it does not run again
    ({"Every": "12:30"}, "12:10", [(1500, -24 * HOUR)], [1200]),
    ({"Every": "12:30"}, "12:10", [(1500, -4 * HOUR), (1560, 4 * HOUR - 600)], [1200, 1800]),
    ({"Crontab": "40 * * * *"}, "12:10", [(1900, -HOUR)], [1800, 1800 + HOUR]),
    ({"Crontab": "40 * * * *"}, "12:10", [(60, -24 * HOUR)], [1800, 1800 + HOUR]),
    ({"Crontab": "40 * * * *"}, "12:10", [(60, HOUR)], [60, 1800, 1800 + HOUR]),
    ({"Crontab": "40 * * * *"}, "12:10", [(60, 24 * HOUR)], [1800, 1800 + HOUR]),
]


@pytest.mark.parametrize(("given", "start", "steps", "expected"), STEPS)
def test_a_clock_that_is_set_neither_stops_a_schedule_nor_makes_it_run_often(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str | list[str]],
    start: str,
    steps: list[tuple[float, float]],
    expected: list[float],
) -> None:
    monkeypatch.setattr(on_schedule, "local_zone", lambda: UTC)
    bench = Bench()
    clock = bench.core.clock
    begin = clock.time = datetime.fromisoformat(f"2026-05-05T{start}:00+00:00").timestamp()
    firings = Firings(clock)
    trigger = OnSchedule(options(given))
    trigger.provision(bench.services, firings)
    trigger.start()
    for moment, step in steps:
        clock.advance(begin + moment - clock.time)
        clock.set_ahead(clock.wall_offset_s + step)
    clock.advance(begin + 2 * HOUR - clock.time)
    expected_at = [
        datetime.fromtimestamp(begin + one, UTC).strftime("%Y-%m-%d %H:%M:%S") for one in expected
    ]
    assert firings.at == expected_at


def test_what_lies_beyond_the_calendar_is_refused() -> None:

    bench = Bench()
    trigger = OnSchedule(options({"Every": "900000000d"}))
    with pytest.raises(ModuleProvisionError):
        trigger.provision(bench.services, Firings(bench.core.clock))
