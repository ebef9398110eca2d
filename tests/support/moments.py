"""Moments of the past, for bookmarks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> str:
    """This moment as a bookmark; nothing else happens within a few milliseconds of it."""
    time.sleep(0.005)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    time.sleep(0.005)
    return moment
