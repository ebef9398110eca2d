"""Schedules of actions: a text is parsed into a schedule, which maps a moment to the next firing.

Schedules are pure: nothing here sleeps or reads a clock, so next year's firings can be
listed today.

    schedule = parse_every("Saturday at 11:00", timezone)
    schedule.next_after(moment)

`Every` has three forms: a duration (a timer, which starts again whenever it has expired), a time of
day, and a day of the week with a time. A `Z` after the time means UTC, otherwise the time is local.
`Crontab` has the five fields of cron. Calendar arithmetic, with its time zones and daylight saving,
is apscheduler's; the meaning of cron (Sunday is 0 and 7; once both are restricted, a day matches
if the day of the month or the day of the week does) is settled here.

Source: AMPS User Guide, On a Schedule (Every); crontab(5) (Crontab, which that guide leaves out).
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

from config_schema.units import UnitError, parse_interval, quoted

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*(z?)", re.IGNORECASE)
_WEEKLY: Final = re.compile(r"([a-z]+)\s+at\s+(\S.*)", re.IGNORECASE)
_EXPECTED_EVERY: Final = (
    "expected a duration such as 15m, a time of day such as 17:30 or 17:30Z, "
    "or a day and a time such as Saturday at 11:00"
)
_MONTHS: Final = (
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_ALL_LEAP_RULES: Final = "2000-2008"
"""Years in which every day of a month occurs: a schedule that never fires in them never fires."""


class ScheduleError(ValueError):
    """A text that is no schedule; its message is a sentence for the author of the configuration."""


class Schedule(Protocol):
    """Computes firings."""

    def next_after(self, time: datetime) -> datetime:
        """Return the first firing later than `time`, which must carry a time zone.

        For a timer, `time` is its last expiry, or the start of the instance.
        """


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """Fires one interval after it was started, again and again."""

    interval: timedelta

    def next_after(self, time: datetime) -> datetime:
        """Return the end of the interval that starts at `time`."""
        return time.astimezone(UTC) + self.interval


@dataclass(frozen=True, slots=True)
class CalendarSchedule:
    """Fires at times of the calendar.

    When clocks are turned back, an hour of local time happens twice. A schedule that names its hour
    (`fires_once`) fires in the first of the two only; one that runs every hour fires in both. A
    time that is left out when clocks are turned forward counts in the time before the change.
    """

    trigger: BaseTrigger
    fires_once: bool

    def next_after(self, time: datetime) -> datetime:
        """Return the first such time later than `time`."""
        firing = time
        while True:
            # In UTC, because adding to a local time may change which of two equal times it is.
            later = firing.astimezone(UTC) + timedelta(microseconds=1)
            next_fire = self.trigger.get_next_fire_time(None, later)
            if not isinstance(next_fire, datetime):
                raise OverflowError(f"the calendar ends before the schedule fires after {time}")
            firing = next_fire
            if not (self.fires_once and firing.fold):
                return firing


@dataclass(frozen=True, slots=True)
class _CronField:
    """One field of a crontab: the numbers it may hold, and the names for some of them."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()
    first_name: int = 0


_CRON_FIELDS: Final = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of the month", 1, 31),
    _CronField("month", 1, 12, _MONTHS, 1),
    _CronField("day of the week", 0, 7, _DAYS),
)


def parse_every(text: str, local: tzinfo) -> Schedule:
    """Read the `Every` option of amps-action-on-schedule.

    Args:
        text: one of the three forms.
        local: the time zone of times without a Z.

    Raises:
        ScheduleError: none of the forms, or a time or day that does not exist.
    """
    spec = text.strip()
    if weekly := _WEEKLY.fullmatch(spec):
        return _at(weekly[2], local, _weekday(weekly[1], text), text)
    if ":" in spec:
        return _at(spec, local, "*", text)
    try:
        interval = parse_interval(spec)
    except UnitError:
        raise ScheduleError(f"{quoted(text)} is not a schedule: {_EXPECTED_EVERY}") from None
    if interval < 1_000:
        raise ScheduleError(f"{quoted(text)} is too short for a schedule: the least is 1us")
    try:
        return IntervalSchedule(timedelta(microseconds=interval // 1_000))
    except OverflowError:
        raise ScheduleError(f"{quoted(text)} is too long for a schedule") from None


def parse_crontab(text: str, local: tzinfo) -> Schedule:
    """Read the `Crontab` option: minute, hour, day of the month, month, day of the week.

    Args:
        text: five fields of numbers, names, ranges, lists and steps.
        local: the time zone of the schedule.

    Raises:
        ScheduleError: not such a text, or one that no day of any year matches.
    """
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        raise ScheduleError(
            f"{quoted(text)} is not a crontab: expected five fields "
            "(minute, hour, day of the month, month, day of the week) such as 30 20 * * *"
        )
    values = [_cron_values(field, rule) for field, rule in zip(fields, _CRON_FIELDS, strict=True)]
    minute, hour, day, month, weekday = values
    days = [{"day": day, "day_of_week": weekday}]
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        days = [{"day": day}, {"day_of_week": weekday}]
    choices = [
        {"minute": minute, "hour": hour, "month": month, **day_fields} for day_fields in days
    ]
    valid_choices = [choice for choice in choices if _ever_fires(choice)]
    if not valid_choices:
        raise ScheduleError(f"{quoted(text)} never comes: no month of its list has that day")
    triggers = [CronTrigger(second=0, timezone=local, **choice) for choice in valid_choices]
    trigger = triggers[0] if len(triggers) == 1 else OrTrigger(triggers)
    return CalendarSchedule(trigger, fires_once=not fields[1].startswith("*"))


def _at(time: str, local: tzinfo, weekday: str, text: str) -> Schedule:
    match = _TIME.fullmatch(time.strip())
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise ScheduleError(
            f"{quoted(text)} is not a schedule: {quoted(time)} is not a time of day "
            "from 00:00 to 23:59, with a Z for UTC"
        )
    zone = UTC if match[3] else local
    hour, minute = int(match[1]), int(match[2])
    trigger = CronTrigger(day_of_week=weekday, hour=hour, minute=minute, second=0, timezone=zone)
    return CalendarSchedule(trigger, fires_once=True)


def _weekday(name: str, text: str) -> str:
    for weekday in WEEKDAYS:
        if weekday.lower() == name.lower():
            return weekday[:3].lower()
    raise ScheduleError(
        f"{quoted(text)} is not a schedule: {quoted(name)} is not a day of the week "
        "(Monday to Sunday, written out)"
    )


def _cron_values(text: str, rule: _CronField) -> str:
    """Return the values of a field in apscheduler's notation, where Monday is 0."""
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
            raise _bad_field(text, rule)
        first, last = _span(span, bool(slash), rule, text)
        values.update(range(first, last + 1, int(step or "1")))
    if rule.name == "day of the week":
        values = {(day - 1) % 7 for day in values}
    return ",".join(str(number) for number in sorted(values))


def _span(span: str, has_step: bool, rule: _CronField, text: str) -> tuple[int, int]:
    if span == "*":
        return rule.lowest, rule.highest
    low, dash, high = span.partition("-")
    first = _number(low, rule, text)
    last = _number(high, rule, text) if dash else rule.highest if has_step else first
    if last < first:
        raise _bad_field(text, rule)
    return first, last


def _number(value: str, rule: _CronField, text: str) -> int:
    if value.upper() in rule.names:
        return rule.names.index(value.upper()) + rule.first_name
    if not (value.isascii() and value.isdigit() and rule.lowest <= int(value) <= rule.highest):
        raise _bad_field(text, rule)
    return int(value)


def _bad_field(text: str, rule: _CronField) -> ScheduleError:
    names = f" or {rule.names[0]} to {rule.names[-1]}" if rule.names else ""
    return ScheduleError(
        f"{quoted(text)} does not fit the {rule.name} of a crontab: expected {rule.lowest} to "
        f"{rule.highest}{names}, a range such as {rule.lowest}-{rule.lowest + 2}, a list, or */2"
    )


def _ever_fires(choice: dict[str, str]) -> bool:
    probe = CronTrigger(second=0, year=_ALL_LEAP_RULES, timezone=UTC, **choice)
    return probe.get_next_fire_time(None, datetime(2000, 1, 1, tzinfo=UTC)) is not None
