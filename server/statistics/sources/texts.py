"""Values and ids as texts, in the form of the Monitoring Guide."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from server.util.clock import MICROSECONDS_PER_SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(seconds: float | None) -> str:
    """Return a moment in UTC as text, as in 20261123T041500.000000Z.

    Args:
        seconds: since the Unix epoch; None for no moment, which is an empty text.
    """
    if seconds is None:
        return ""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y%m%dT%H%M%S.%fZ}"


def moment_of_us(microseconds: int | None) -> str:
    """Return a moment in microseconds since the Unix epoch as text; see `moment`."""
    return moment(None if microseconds is None else microseconds / MICROSECONDS_PER_SECOND)


def duration(seconds: float) -> str:
    """Return a duration as hh:mm:ss.uuuuuu. Source: Monitoring Guide, uptime."""
    microseconds = round(seconds * MICROSECONDS_PER_SECOND)
    minutes, remainder = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    full_seconds, fraction = divmod(remainder, MICROSECONDS_PER_SECOND)
    return f"{hours:02}:{minutes:02}:{full_seconds:02}.{fraction:06}"


def interval(nanoseconds: int) -> str:
    """Return an interval as the configuration may have it: seconds, or parts of one."""
    return f"{nanoseconds / 1_000_000_000:g}s"


def topic_ids(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the ids of topics: several of one name may have different message types.

    Args:
        names: for each topic its name, and the name of its message type.

    Source: Deployment Checklist, SOW Topic Traffic Metrics.
    """
    return [f"{name}!{message_type}" for name, message_type in names]
