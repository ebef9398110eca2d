"""Functions of time. A timestamp is seconds since 1970-01-01 00:00 UTC, as a double."""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from server.expressions.functions.registry import Function, Parameter
from server.message_types.base import Value
from server.util.encoding import bytes_to_text, text_to_bytes

TimestampClock: TypeAlias = Callable[[], float]
"""Returns the current time as a timestamp."""

LEGACY_MODULE: Final = "libamps_udf_legacy_compatibility.so"

_TEXT, _NUMBER = Parameter.TEXT, Parameter.NUMBER
_MAX_RESULT_LENGTH: Final = 128
"""Maximum length of a result of STRFTIME, in bytes."""
_FRACTION: Final = re.compile(r"%(%|f|03f)")
_ABBREVIATED: Final = {
    "%T": "%H:%M:%S",
    "%R": "%H:%M",
    "%D": "%m/%d/%y",
    "%F": "%Y-%m-%d",
    "%e": "%d",
    "%h": "%b",
    "%n": " ",
    "%t": " ",
    "%03f": "%f",
}
"""Conversions of C's strptime that Python's lacks; %03f is AMPS's own."""
_CONVERSION: Final = re.compile(r"%(?:03f|.)", re.DOTALL)


def _utc(timestamp: float) -> datetime.datetime | None:
    """Return a timestamp as a datetime, truncated to microseconds; None if its year is invalid."""
    if not math.isfinite(timestamp):
        return None
    try:
        return datetime.datetime.fromtimestamp(timestamp, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _strftime(pattern: bytes, timestamp: float) -> str | None:
    moment = _utc(timestamp)
    if moment is None or b"\0" in pattern:
        return None
    fractions = {
        "%": "%%",
        "f": f"{moment.microsecond:06d}",
        "03f": f"{moment.microsecond // 1000:03d}",
    }
    expanded = _FRACTION.sub(lambda match: fractions[match[1]], bytes_to_text(pattern))
    formatted = time.strftime(expanded, moment.timetuple())
    return bytes_to_text(text_to_bytes(formatted)[:_MAX_RESULT_LENGTH])


def _strptime(text: bytes, pattern: bytes) -> float | None:
    expanded = _CONVERSION.sub(lambda m: _ABBREVIATED.get(m[0], m[0]), bytes_to_text(pattern))
    try:
        moment = datetime.datetime.strptime(bytes_to_text(text), expanded)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except (ValueError, OverflowError, re.error):  # the format may name a conversion twice
        return None


def built_in(clock: TimestampClock) -> tuple[Function, ...]:
    """Return the functions of time that need no module.

    Args:
        clock: the clock of UNIX_TIMESTAMP.

    AMPS User Guide, Date and Time Functions. Times are UTC.
    """
    section = "Time"
    return (
        Function(
            "UNIX_TIMESTAMP",
            section,
            "The current time in seconds since 1970, with a fraction.",
            clock,
            is_deterministic=False,
        ),
        Function(
            "STRFTIME",
            section,
            "The second argument, a timestamp, as a text in the format of the first: "
            "those of strftime(3), `%f` for microseconds and `%03f` for milliseconds. "
            "UTC; at most 128 bytes.",
            _strftime,
            (_TEXT, _NUMBER),
        ),
        Function(
            "STRPTIME",
            section,
            "The timestamp that the first argument, a text in the format of the second, "
            "stands for; NULL if it does not fit.",
            _strptime,
            (_TEXT, _TEXT),
        ),
    )


def _part(part: Callable[[datetime.datetime], Value]) -> Callable[[float], Value]:
    def apply(timestamp: float) -> Value:
        moment = _utc(timestamp)
        return None if moment is None else part(moment)

    return apply


def _day_utc(timestamp: float) -> Value:
    return math.floor(timestamp / 86_400) * 86_400 if math.isfinite(timestamp) else None


def _day_local(timestamp: float) -> Value:
    try:
        local = time.localtime(timestamp)
        midnight = (local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, -1)
        return int(time.mktime(midnight))
    except (ValueError, OverflowError, OSError):
        return None


def legacy(clock: TimestampClock) -> tuple[Function, ...]:
    """Return the functions of the legacy compatibility module.

    Args:
        clock: the clock of TODAY, TODAY_UTC and TIMEZONEOFFSET.

    AMPS User Guide, Legacy Messaging Compatibility Functions.
    """
    section = "Legacy compatibility"

    def offset() -> int:
        return time.localtime(clock()).tm_gmtoff

    return (
        Function(
            "TIMEZONEOFFSET",
            section,
            "How many seconds the local time zone is ahead of UTC now.",
            offset,
        ),
        Function(
            "YEAR",
            section,
            "The year of a timestamp, in UTC.",
            _part(lambda moment: moment.year),
            (_NUMBER,),
        ),
        Function(
            "MONTH",
            section,
            "The month of a timestamp, 1 to 12, in UTC.",
            _part(lambda moment: moment.month),
            (_NUMBER,),
        ),
        Function(
            "DAY",
            section,
            "The day of the month of a timestamp, in UTC.",
            _part(lambda moment: moment.day),
            (_NUMBER,),
        ),
        Function(
            "DATE_UTC",
            section,
            "The timestamp of the beginning of a timestamp's day, in UTC.",
            _day_utc,
            (_NUMBER,),
        ),
        Function(
            "DATE",
            section,
            "The timestamp of the beginning of a timestamp's day, in the local time zone.",
            _day_local,
            (_NUMBER,),
        ),
        Function(
            "TODAY_UTC",
            section,
            "The timestamp of the beginning of the current day, in UTC.",
            lambda: _day_utc(clock()),
        ),
        Function(
            "TODAY",
            section,
            "The timestamp of the beginning of the current day, in the local time zone.",
            lambda: _day_local(clock()),
        ),
    )
