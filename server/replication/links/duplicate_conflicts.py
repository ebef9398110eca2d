"""Logs pairs of messages that have the same bookmark.

Two concurrent publishers of one name, or a publisher that restarts its sequence numbers, give two
messages the same bookmark at two instances. Each instance keeps the message that it received first,
so the other message never arrives, and no later comparison of logs would show it. That must be
reported. It must not fill the log either, for there may be as many conflicts as messages. The first
conflict of a publisher is logged, and then, as long as there are more, their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.util.rate_limited_log import LogWindow, RateLimitedLog

if TYPE_CHECKING:
    from server.replication.core import DuplicateConflict
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

CONFLICT_LOG_INTERVAL_S: Final = 60.0
"""Interval at which the number of further conflicts is logged."""


class DuplicateConflictLog:
    """Counts conflicts, and logs them, rate-limited by publisher.

    Args:
        clock: the time, and timers.
        log: the event log.

    Attributes:
        count: total number of conflicts.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self.count = 0
        self._log: Final = RateLimitedLog(
            log,
            clock,
            burst=1,
            window_s=CONFLICT_LOG_INTERVAL_S,
            summary=_log_further_conflicts,
            is_continued=True,
        )

    def record_conflicts(self, source: str, conflicts: Sequence[DuplicateConflict]) -> None:
        """Count messages that were not recorded, because others have the same bookmarks.

        Args:
            source: name of the instance that has sent them.
            conflicts: the messages.
        """
        self.count += len(conflicts)
        for conflict in conflicts:
            fields: dict[str, object] = {
                "other": source,
                "topic": conflict.topic.name,
                "identity": conflict.client,
                "sequence": conflict.sequence,
            }
            self._log.emit_events("1E-0006", (source, conflict.client), fields, group=source)


def _log_further_conflicts(log: ServerLog, window: LogWindow) -> None:
    """Log the number of further conflicts, with the last of them."""
    log.emit("1E-0010", count=window.suppressed_count, age=window.age, **window.fields)
