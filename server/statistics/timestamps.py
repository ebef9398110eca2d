"""Timestamps of the statistics database, and their texts.

A timestamp counts milliseconds as AMPS does: the Julian day number of the day, of 86,400 seconds
each, and the time of day in UTC.

Source: AMPS User Guide, Time Range Selection; Statistics Database Report.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

UNIX_EPOCH: Final = 210_866_803_200_000
"""The timestamp of the first moment of 1970."""

SECOND: Final = 1_000

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT: Final = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)"  # the day
    r"(?:[T ](?:(\d\d?)(?::?(\d\d?)(?::?(\d\d?)(?:[.,](\d+))?)?)?)?)?Z?",
    re.ASCII,
)


def from_unix(seconds: float) -> int:
    """Return the timestamp of a moment that is given in seconds since the Unix epoch."""
    return round(seconds * SECOND) + UNIX_EPOCH


def to_unix(timestamp: int) -> float:
    """Return a timestamp's moment in seconds since the Unix epoch."""
    return (timestamp - UNIX_EPOCH) / SECOND


def to_text(timestamp: int) -> str:
    """Return a timestamp as in documents, such as 20230830T000010.000000Z.

    Raises:
        OverflowError: it is not in the years 1 to 9999.
    """
    return f"{_moment(timestamp):%Y%m%dT%H%M%S.%f}Z".zfill(len("20230830T000010.000000Z"))


def to_local_text(timestamp: int) -> str:
    """Return a timestamp in the time zone of this process, such as 20230830T020010.000000.

    Raises:
        OverflowError: it is not in the years 1 to 9999.
    """
    local = _moment(timestamp).astimezone()
    return f"{local:%Y%m%dT%H%M%S.%f}".zfill(len("20230830T000010.000000"))


def from_text(text: str) -> int:
    """Return the timestamp for a text in ISO 8601.

    Parts left out at the end are zero: 20230830T0 is the beginning of that day. A Z for UTC, which
    all texts use, may be at the end, and digits below a millisecond are truncated.

    Raises:
        ValueError: it is not a valid moment.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time in UTC, such as 20230830T000010")
    *numbers, fraction = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, numbers)
    try:
        time = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: {error}") from None
    milliseconds = int(fraction[:3].ljust(3, "0"))
    return (time - _FIRST) // timedelta(milliseconds=1) + milliseconds + UNIX_EPOCH


def _moment(timestamp: int) -> datetime:
    return _FIRST + timedelta(milliseconds=timestamp - UNIX_EPOCH)
