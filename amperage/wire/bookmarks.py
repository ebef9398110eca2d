"""Bookmarks name messages: `client name hash|sequence|`, both unsigned 64-bit decimals.

In their place, commands accept EPOCH and NOW, and timestamps in UTC: 20150102T123500Z (AMPS User
Guide, Bookmark Replay from a Moment in Time).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Final

EPOCH: Final = "0"
"""The beginning of the transaction log."""
NOW: Final = "0|1|"
"""The end of the transaction log."""
_NOW: Final = re.compile(r"0\|1\|?|1\|0\|?")
"""Libraries for browsers write the latter; it could only name the message before the first."""

_MOMENT: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,9}))?Z?", re.ASCII)
_NANOSECONDS: Final = 1_000_000_000


@lru_cache(maxsize=4096)
def client_hash(client_name: str) -> int:
    """Return the number that represents a client's name in bookmarks.

    The same name has the same number on every instance and in every run.
    """
    digest = blake2b(client_name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def is_now(text: str) -> bool:
    """Return whether a text in the place of a bookmark means NOW: live messages only."""
    return _NOW.fullmatch(text) is not None


def parse_moment(text: str) -> int | None:
    """Parse a timestamp in the place of a bookmark.

    Returns:
        Nanoseconds since 1970; None if the text is not a timestamp.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    try:
        second = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    fraction = int((match[2] or "").ljust(9, "0"))
    return int(second.timestamp()) * _NANOSECONDS + fraction
