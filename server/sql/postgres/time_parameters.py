"""Dates, times and intervals of parameters, from PostgreSQL's text and binary formats."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from server.sql.postgres.errors import FormatError
from server.sql.postgres.time_formats import DAY_US, POSTGRES_EPOCH_DAYS, clock_text
from server.sql.sqlstate import DATETIME_FIELD_OVERFLOW, INVALID_DATETIME_FORMAT

if TYPE_CHECKING:
    from server.sql.postgres.parameters import Value

_DATE_ORIGIN: Final = date(1970, 1, 1).toordinal() + POSTGRES_EPOCH_DAYS
_EPOCH: Final = datetime(2000, 1, 1)
_INFINITE_US: Final = 2**63 - 1
_INFINITE_DAYS: Final = 2**31 - 1
_INTERVAL: Final = Struct(">qii")
_ZONE: Final = re.compile(
    r"\s*(?:(Z|UTC|GMT)|([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?)$", re.IGNORECASE
)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T\s]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?)?"
)
_CLOCK: Final = re.compile(r"([+-]?)(\d{1,9}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?")
_INTERVAL_PART: Final = re.compile(r"([+-]?\d{1,10}(?:\.\d{1,9})?)\s*([a-z]+)")
_ISO_INTERVAL: Final = re.compile(r"(T)|([+-]?\d{1,10}(?:\.\d{1,9})?)([YMWDHS])")
_UNITS_US: Final = {
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "hr": 3_600_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "ms": 1000,
    "millisecond": 1000,
    "us": 1,
    "microsecond": 1,
}
_UNITS_DAYS: Final = {"d": 1, "day": 1, "week": 7}
_UNITS_MONTHS: Final = {"mon": 1, "month": 1, "y": 12, "year": 12, "decade": 120, "century": 1200}
_ISO_UNITS: Final = {"Y": "year", "W": "week", "D": "day", "H": "hour", "S": "sec"}


class IntervalValue(NamedTuple):
    """An interval: PostgreSQL keeps months and days apart, which differ in length.

    Attributes:
        months: years are 12 months.
        days: days.
        microseconds: the rest.
    """

    months: int
    days: int
    microseconds: int

    def __str__(self) -> str:
        """Return a text that PostgreSQL and DuckDB read as this interval."""
        sign = "-" if self.microseconds < 0 else ""
        clock = sign + clock_text(abs(self.microseconds))
        return f"{self.months} months {self.days} days {clock}"


def of_size(data: bytes, size: int) -> bytes:
    """Return data that have to be of a size."""
    if len(data) != size:
        raise ValueError("incorrect size")
    return data


def date_from_text(text: str) -> Value:
    """Decode the text of a date."""
    moment = _moment(text)
    return moment.date()


def date_from_binary(data: bytes) -> Value:
    """Decode the binary format of a date."""
    days = int.from_bytes(of_size(data, 4), "big", signed=True)
    if days >= _INFINITE_DAYS:
        return date.max
    if days < -_INFINITE_DAYS:
        return date.min
    try:
        return date.fromordinal(days + _DATE_ORIGIN)
    except (ValueError, OverflowError):
        raise _out_of_range("date") from None


def timestamp_from_text(text: str) -> Value:
    """Decode the text of a timestamp."""
    return _moment(text).replace(tzinfo=None)  # PostgreSQL ignores a zone here


def timestamptz_from_text(text: str) -> Value:
    """Decode the text of a timestamp with a zone."""
    moment = _moment(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def timestamp_from_binary(data: bytes) -> Value:
    """Decode the binary format of a timestamp."""
    microseconds = int.from_bytes(of_size(data, 8), "big", signed=True)
    if microseconds >= _INFINITE_US:
        return datetime.max
    if microseconds < -_INFINITE_US:
        return datetime.min
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise _out_of_range("timestamp") from None


def timestamptz_from_binary(data: bytes) -> Value:
    """Decode the binary format of a timestamp with a zone."""
    moment = timestamp_from_binary(data)
    assert isinstance(moment, datetime)  # noqa: S101 - for the type checker
    return moment.replace(tzinfo=UTC)


def _out_of_range(name: str) -> FormatError:
    return FormatError(DATETIME_FIELD_OVERFLOW, f"{name} out of range")


def _moment(text: str) -> datetime:
    """Return the moment that a text in ISO style names, in UTC if it has a zone.

    Infinity is the last moment that Python has, -infinity the first one.
    """
    text = text.strip()
    word = text.lower()
    if word in ("infinity", "+infinity"):
        return datetime.max
    if word == "-infinity":
        return datetime.min
    match = _TIMESTAMP.match(text)
    if match is None:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for date or time")
    rest = text[match.end() :]
    zone = _ZONE.match(rest)
    if rest and zone is None:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    clock = timedelta(hours=hour, minutes=minute, seconds=second)
    if minute > 59 or second > 60 or clock > timedelta(days=1):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "date/time field value out of range")
    try:
        moment = datetime(year, month, day) + clock
        moment += timedelta(microseconds=_fraction_us(match[7]))
        if zone is None:
            return moment
        return (moment - _zone_offset(zone)).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "date/time field value out of range") from None


def _zone_offset(zone: re.Match[str]) -> timedelta:
    hours, minutes, seconds = (int(part or 0) for part in zone.groups()[2:])
    if hours > 15 or minutes > 59 or seconds > 59:
        raise ValueError("time zone displacement out of range")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -offset if zone[2] == "-" else offset


def _fraction_us(digits: str | None) -> int:
    """Return the digits after the point of seconds in microseconds, rounded."""
    return (int((digits or "0")[:7].ljust(7, "0")) + 5) // 10


def _clock_us(match: re.Match[str]) -> int:
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:4])
    if minutes > 59 or seconds > 60:
        raise _out_of_range("time")
    total = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + _fraction_us(match[5])
    return -total if match[1] == "-" else total


def time_from_text(text: str) -> Value:
    """Decode the text of a time of day."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None or match[1]:
        raise FormatError(INVALID_DATETIME_FORMAT, "invalid input syntax for type time")
    return _time_of_day(_clock_us(match))


def time_from_binary(data: bytes) -> Value:
    """Decode the binary format of a time of day."""
    return _time_of_day(int.from_bytes(of_size(data, 8), "big", signed=True))


def _time_of_day(microseconds: int) -> time:
    """Return a time of day; Python has no 24:00:00, and gets the last moment of the day."""
    if not 0 <= microseconds <= DAY_US:
        raise _out_of_range("time")
    seconds, fraction = divmod(min(microseconds, DAY_US - 1), 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)


def interval_from_binary(data: bytes) -> Value:
    """Decode the binary format of an interval."""
    microseconds, days, months = _INTERVAL.unpack(of_size(data, 16))
    return IntervalValue(months, days, microseconds)


def interval_from_text(text: str) -> Value:
    """Decode the styles "postgres", "postgres_verbose" and ISO 8601."""
    text = text.strip()
    parts = _iso_interval_parts(text) if text[:1] == "P" else _interval_parts(text.lower())
    months = days = microseconds = Decimal(0)
    for amount, unit in parts:
        singular = unit.removesuffix("s") if len(unit) > 2 else unit
        if singular in _UNITS_US:
            microseconds += amount * _UNITS_US[singular]
        elif singular in _UNITS_DAYS:
            days += amount * _UNITS_DAYS[singular]
        elif singular in _UNITS_MONTHS:
            months += amount * _UNITS_MONTHS[singular]
        else:
            raise ValueError("unknown unit")
    # A fraction of a month goes to days, one of a day to the rest, as in PostgreSQL.
    days += (months - int(months)) * 30
    microseconds += (days - int(days)) * DAY_US
    value = IntervalValue(int(months), int(days), round(microseconds))
    limits = (2**31, 2**31, 2**63)
    if not all(-limit <= part < limit for part, limit in zip(value, limits, strict=True)):
        raise FormatError(DATETIME_FIELD_OVERFLOW, "interval out of range")
    return value


def _interval_parts(text: str) -> list[tuple[Decimal, str]]:
    text = text.removeprefix("@").strip()
    sign = -1 if text.endswith(" ago") else 1
    text = text.removesuffix(" ago")
    parts = []
    position = 0
    while position < len(text):
        if match := _INTERVAL_PART.match(text, position):
            parts.append((sign * Decimal(match[1]), match[2]))
        elif match := _CLOCK.match(text, position):
            parts.append((sign * Decimal(_clock_us(match)), "us"))
        else:
            raise ValueError("not an interval")
        position = match.end()
        while text[position : position + 1].isspace():
            position += 1
    if not parts:
        raise ValueError("not an interval")
    return parts


def _iso_interval_parts(text: str) -> list[tuple[Decimal, str]]:
    parts = []
    in_time = False
    position = 1
    while position < len(text):
        match = _ISO_INTERVAL.match(text, position)
        if match is None:
            raise ValueError("not an interval")
        position = match.end()
        if match[1]:
            in_time = True
        elif match[3] == "M":
            parts.append((Decimal(match[2]), "min" if in_time else "month"))
        else:
            parts.append((Decimal(match[2]), _ISO_UNITS[match[3]]))
    if not parts:
        raise ValueError("not an interval")
    return parts
