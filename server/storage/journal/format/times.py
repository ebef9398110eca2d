"""Formats of times in the journal's tools."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_JULIAN: Final = 210_866_803_200_000_000
"""Microseconds from the beginning of the Julian day count, at noon, to the Unix epoch."""


def raw_timestamp(microseconds: int) -> int:
    """Convert a time to AMPS's form in journals: Julian days of 86,400 seconds, in microseconds.

    Args:
        microseconds: since the Unix epoch.
    """
    return microseconds + _JULIAN


def iso_timestamp(microseconds: int, *, local: bool = False) -> str:
    """Format a time as `YYYYmmddTHHMMSS.ffffff` with Z, or the offset of the local time zone.

    Args:
        microseconds: since the Unix epoch; a value outside of the calendar is shown as a number.
        local: show local time.
    """
    try:
        time = _EPOCH + timedelta(microseconds=microseconds)
        if local:
            return time.astimezone().strftime("%Y%m%dT%H%M%S.%f%z")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)
    return time.strftime("%Y%m%dT%H%M%S.%fZ")
