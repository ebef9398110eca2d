"""The time zone of schedules that name none: that of the machine, with its daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import tzlocal


def local_zone() -> tzinfo:
    """Return the time zone that TZ or the system's settings name.

    A TZ that names no zone of the time zone database stands for the offset that it gives now.
    """
    try:
        return tzlocal.get_localzone()
    except (LookupError, ValueError, OSError):
        return datetime.now().astimezone().tzinfo or UTC
