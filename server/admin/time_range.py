"""The time range of a request: t0 and t1.

Source: AMPS User Guide, Time Range Selection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from server.admin.http.messages import HttpError
from server.statistics.timestamps import from_text

_MAX_TIMESTAMP = 1 << 62
"""Later than all timestamps."""

MAX_POINTS = 1_000
"""Values of one answer to a request with `points`."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of time, both ends included, in timestamps of the statistics.

    Attributes:
        first: its beginning; 0 for that of the samples.
        last: its end.
        points: the maximum number of values, which are averages then; None for all values.
    """

    first: int
    last: int
    points: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has no end."""
        return self.last == _MAX_TIMESTAMP

    @property
    def is_moment(self) -> bool:
        """Whether it is a single moment, at which a sample has to exist."""
        return self.first == self.last


def read_moments(query: Mapping[str, str]) -> TimeRange | None:
    """Return the time range of a request; None for now.

    Raises:
        HttpError: t0 or t1 is no time, or t0 is later than t1, or points is no such number.
    """
    if not query.keys() & {"t0", "t1", "points"}:
        return None
    time_range = TimeRange(
        _read(query, "t0", 0), _read(query, "t1", _MAX_TIMESTAMP), _read_points(query)
    )
    if time_range.first > time_range.last:
        raise HttpError(400, "t0 is later than t1: expected the beginning in t0, the end in t1.")
    return time_range


def _read_points(query: Mapping[str, str]) -> int | None:
    text = query.get("points")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 0 < int(text) <= MAX_POINTS):
        raise HttpError(400, f"points={text!r} is no number: expected 1 to {MAX_POINTS}.")
    return int(text)


def _read(query: Mapping[str, str], name: str, default: int) -> int:
    if name not in query:
        return default
    try:
        return from_text(query[name])
    except ValueError:
        raise HttpError(
            400,
            f"{name}={query[name]!r} is no time: expected YYYYMMDDThhmmss in UTC, with as many "
            "decimals as you like, such as 20230830T0 or 20230830T232500.5.",
        ) from None
