"""Logs which message of a queue prevents the removal of journals.

A message that no consumer acknowledges retains all of the log after it, and the operator would not
notice before the disk is full. So whenever a journal due for removal must stay for a queue, a log
entry names the queue's oldest message, and the reason why it is still there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from server.queues.topic.descriptions import bookmark_of, describe_obstacles
from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from pathlib import Path

    from server.queues.core import Queue
    from server.queues.topic.context import QueueServices

_LOG_INTERVAL_S: Final = 3600.0
"""Minimum seconds between two log entries: the check for removable journals runs every second."""


class QueueRetentionLog:
    """Reports the oldest message of one queue when a journal must stay for it.

    Args:
        core: the queue.
        name: its name.
        services: the server's services for the queue.
    """

    def __init__(self, core: Queue, name: str, services: QueueServices) -> None:
        self._core: Final = core
        self._name: Final = name
        self._services: Final = services
        self._log: Final = RateLimitedLog(
            services.events, services.clock, burst=1, window_s=_LOG_INTERVAL_S, summary=None
        )

    def log_retained_journal(self, path: Path, end: int) -> None:
        """Log why a journal due for removal stays, at most once an hour.

        Args:
            path: the journal.
            end: the txid after its last entry.
        """
        entries = self._core.lifecycle.entries
        offset = entries.head
        if (
            self._log.is_suppressed("1D-0018")
            or offset == entries.end
            or entries.txid(offset) >= end
        ):
            return
        now_us = int(self._services.clock.steady() * MICROSECONDS_PER_SECOND)
        self._log.emit(
            "1D-0018",
            path=path,
            queue=self._name,
            bookmark=bookmark_of(self._core, offset),
            age=timedelta(
                seconds=max(now_us - entries.recorded_at(offset), 0) // MICROSECONDS_PER_SECOND
            ),
            why=describe_obstacles(self._core, offset, now_us),
        )
