"""Times in messages.

A text in ISO 8601 (RFC 3339) is a time everywhere. Other forms depend on the message type, or on
the option `timestamps`. All other values are refused: a number of milliseconds that is read as
seconds would silently produce a wrong row.

    bson, bflat    integers are milliseconds since 1970, as their types Date and Datetime are
    fix, nvfix     20260102-03:04:05.123 (UTCTimestamp), 20260102 (UTCDateOnly)
    msgpack        the timestamp extension

A time without an offset is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

TIMESTAMPS: Final = ("seconds", "millis", "micros", "fix", "iso")
"""The values of the option `timestamps`."""

_UNITS: Final[Mapping[str, int]] = {"seconds": 1_000_000, "millis": 1000, "micros": 1}
_BY_TYPE: Final[Mapping[str, str]] = {
    "bson": "millis",
    "bflat": "millis",
    "fix": "fix",
    "nvfix": "fix",
}
_ONLY_TEXTS: Final = frozenset(("fix", "nvfix", "xml"))
"""Message types without numbers: a number is a text of digits."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIX: Final = re.compile(
    r"(\d{4})(\d\d)(\d\d)(?:-(\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?)?", re.ASCII
)
_FIX_TIME: Final = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_LEAP_SECOND: Final = 60
"""It counts as the first second of the next minute."""

TimeValue = object
"""A value in a message."""


class TimeRule(NamedTuple):
    """The forms of times, besides texts in ISO 8601.

    Attributes:
        unit: the microseconds per unit of a number; 0 if numbers are not times.
        reads_fix: whether the forms of FIX are times.
        reads_text_numbers: whether numbers are written as texts.
    """

    unit: int
    reads_fix: bool
    reads_text_numbers: bool

    @property
    def is_iso(self) -> bool:
        """True if there are no other forms."""
        return not self.unit and not self.reads_fix


def time_rule(message_type: str, timestamps: str | None) -> TimeRule:
    """Return the rule for messages of a type.

    Args:
        message_type: the type.
        timestamps: one of `TIMESTAMPS`, to override the type's rule.
    """
    rule_name = timestamps or _BY_TYPE.get(message_type, "iso")
    return TimeRule(_UNITS.get(rule_name, 0), rule_name == "fix", message_type in _ONLY_TEXTS)


def to_moment(value: TimeValue, rule: TimeRule) -> datetime:
    """Return a value as a timestamp.

    Raises:
        ValueError: it is not a time.
    """
    if isinstance(value, datetime):
        return value
    number = _number(value, rule)
    if number is not None:
        return _since_epoch(number, rule.unit)
    if isinstance(value, str):
        moment = _from_fix(value) if rule.reads_fix else None
        return msgspec.convert(value, datetime) if moment is None else moment
    raise ValueError(_no_time(value, rule))


def to_date(value: TimeValue, rule: TimeRule) -> date:
    """Return a value as a date; for a timestamp, its date in UTC.

    Raises:
        ValueError: it is not a time.
    """
    number = _number(value, rule)
    if isinstance(value, datetime):
        return value.astimezone(UTC).date()
    if number is not None:
        return _since_epoch(number, rule.unit).date()
    if isinstance(value, str):
        moment = _from_fix(value) if rule.reads_fix else None
        return msgspec.convert(value, date) if moment is None else moment.date()
    raise ValueError(_no_time(value, rule))


def _number(value: TimeValue, rule: TimeRule) -> int | float | None:
    """Return the number that represents a time; None if the value is not a number."""
    if not rule.unit or isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if rule.reads_text_numbers and isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return None


def _since_epoch(number: int | float, unit: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=round(number * unit))
    except (OverflowError, ValueError):
        raise ValueError(f"{number} is not a time between the years 1 and 9999") from None


def _from_fix(text: str) -> datetime | None:
    """Return the time of a UTCTimestamp or UTCDateOnly; None if the text has another form."""
    if _FIX_TIME.fullmatch(text):
        raise ValueError("a time of day has no date; read the column as STRING")
    match = _FIX.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if second > _LEAP_SECOND:
        raise ValueError("second must be in 0..60")
    microseconds = int((match[7] or "0").ljust(6, "0")[:6])
    begin = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return begin + timedelta(seconds=second, microseconds=microseconds)


def _no_time(value: TimeValue, rule: TimeRule) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not rule.unit:
        return (
            f"the number {value} is a time only with the option timestamps, which gives its unit:"
            " seconds, millis or micros"
        )
    return f"expected a time, got {value!r}"
