"""Schedules: the three forms of Every and the five fields of a crontab, listed firing by firing."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.schedule import Schedule, ScheduleError, parse_crontab, parse_every

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def firings(schedule: Schedule, start: str, count: int) -> list[str]:
    moment = at(start)
    found = []
    for _ in range(count):
        moment = schedule.next_after(moment)
        found.append(moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))
    return found


EVERY = [
    # text, start, firings in UTC
    ("15m", "2026-01-01T00:00:10+00:00", ["2026-01-01 00:15:10", "2026-01-01 00:30:10"]),
    ("1d", "2026-01-01T08:00:00-05:00", ["2026-01-02 13:00:00", "2026-01-03 13:00:00"]),
    ("30", "2026-01-01T00:00:00+00:00", ["2026-01-01 00:00:30"]),
    ("17:47", "2026-01-01T00:00:00-05:00", ["2026-01-01 22:47:00", "2026-01-02 22:47:00"]),
    ("17:47Z", "2026-01-01T00:00:00-05:00", ["2026-01-01 17:47:00", "2026-01-02 17:47:00"]),
    ("00:32", "2026-01-01T00:32:00-05:00", ["2026-01-02 05:32:00"]),
    ("Saturday at 11:00", "2026-01-01T00:00:00-05:00", ["2026-01-03 16:00:00"]),
    ("wednesday at 03:32z", "2026-01-01T00:00:00-05:00", ["2026-01-07 03:32:00"]),
    # Clocks are turned forward on March 8 and back on November 1.
    ("02:30", "2026-03-07T12:00:00-05:00", ["2026-03-08 07:30:00", "2026-03-09 06:30:00"]),
    ("01:30", "2026-10-31T12:00:00-04:00", ["2026-11-01 05:30:00", "2026-11-02 06:30:00"]),
    ("1h", "2026-11-01T00:30:00-04:00", ["2026-11-01 05:30:00", "2026-11-01 06:30:00"]),
]


@pytest.mark.parametrize(("text", "start", "expected"), EVERY)
def test_every_fires_at(text: str, start: str, expected: list[str]) -> None:
    assert firings(parse_every(text, NEW_YORK), start, len(expected)) == expected


CRONTABS = [
    ("30 20 * * *", "2026-01-01T00:00:00-05:00", ["2026-01-02 01:30:00", "2026-01-03 01:30:00"]),
    ("0 0 * * 0", "2026-01-01T00:00:00-05:00", ["2026-01-04 05:00:00", "2026-01-11 05:00:00"]),
    ("0 0 * * 7", "2026-01-01T00:00:00-05:00", ["2026-01-04 05:00:00"]),
    ("0 0 * * fri-sat", "2026-01-01T00:00:00-05:00", ["2026-01-02 05:00:00"]),
    ("0 0 1 FEB *", "2026-01-01T00:00:00-05:00", ["2026-02-01 05:00:00", "2027-02-01 05:00:00"]),
    ("0 0 29 2 *", "2026-01-01T00:00:00-05:00", ["2028-02-29 05:00:00", "2032-02-29 05:00:00"]),
    # Both days are restricted: either of them will do.
    ("0 0 6 * 1", "2026-01-01T00:00:00-05:00", ["2026-01-05 05:00:00", "2026-01-06 05:00:00"]),
    ("0 0 31 2 1", "2026-02-01T00:00:00-05:00", ["2026-02-02 05:00:00", "2026-02-09 05:00:00"]),
    ("5-10/5,50 * * * *", "2026-01-01T00:00:00+00:00", ["2026-01-01 00:05:00"]),
    ("50/5 0 * * *", "2026-01-01T00:00:00-05:00", ["2026-01-01 05:50:00", "2026-01-01 05:55:00"]),
    # An hour that happens twice: a schedule that names it runs once, an hourly one runs in both.
    ("30 1 * * *", "2026-10-31T12:00:00-04:00", ["2026-11-01 05:30:00", "2026-11-02 06:30:00"]),
    ("30 * * * *", "2026-11-01T00:50:00-04:00", ["2026-11-01 05:30:00", "2026-11-01 06:30:00"]),
]


@pytest.mark.parametrize(("text", "start", "expected"), CRONTABS)
def test_crontab_fires_at(text: str, start: str, expected: list[str]) -> None:
    assert firings(parse_crontab(text, NEW_YORK), start, len(expected)) == expected


NO_EVERY = """
soon|24:00|12:60|7:5|Sat at 11:00|Saturday|Saturday at noon|Saturday at 11:00 PM|11:00 Z Z
0s|1h30m|30 20 * * *|-5m|99999999999999999h
"""


@pytest.mark.parametrize("text", ["", *NO_EVERY.strip().replace("\n", "|").split("|")])
def test_every_refuses(text: str) -> None:
    with pytest.raises(ScheduleError, match="schedule"):
        parse_every(text, UTC)


NO_CRONTAB = """
* * * *|* * * * * *|60 * * * *|* 24 * * *|* * 0 * *|* * * 13 *|* * * * 8|* * * * fr
5-1 * * * *|*/0 * * * *|*/x * * * *|1,, * * * *|a * * * *|- * * * *|0 0 31 2 *|0 0 31 4,6 *
"""


@pytest.mark.parametrize("text", ["", *NO_CRONTAB.strip().replace("\n", "|").split("|")])
def test_crontab_refuses(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_crontab(text, UTC)


@given(st.text(alphabet="0123456789:*/-, atSatudyZMON.\n", max_size=24))
def test_any_text_is_a_schedule_or_a_schedule_error(text: str) -> None:
    for parse in (parse_every, parse_crontab):
        try:
            schedule = parse(text, NEW_YORK)
        except ScheduleError:
            continue
        moment = at("2026-06-01T00:00:00+00:00")
        assert schedule.next_after(moment) > moment


MOMENTS = st.datetimes(
    min_value=datetime(2020, 1, 1),
    max_value=datetime(2030, 1, 1),
    timezones=st.just(UTC),
)


@given(MOMENTS, st.integers(0, 23), st.integers(0, 59), st.integers(0, 6))
def test_crontab_agrees_with_a_search_minute_by_minute(
    moment: datetime, hour: int, minute: int, weekday: int
) -> None:
    firing = parse_crontab(f"{minute} {hour} * * {weekday}", UTC).next_after(moment)
    day = moment.replace(hour=hour, minute=minute, second=0, microsecond=0)
    candidates = (day + timedelta(days=ahead) for ahead in range(8))
    expected = next(
        found for found in candidates if found > moment and found.isoweekday() % 7 == weekday
    )
    assert firing == expected
