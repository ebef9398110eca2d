"""Logs pairs of messages that have the same bookmark.

Two concurrent publishers of one name, or a publisher that restarts its sequence numbers, give two
messages the same bookmark at two instances. Each instance keeps the message that it received first,
so the other message never arrives, and no later comparison of logs would show it. That must be
reported. It must not fill the log either, for there may be as many conflicts as messages. The first
conflict of a publisher is logged, and then, as long as there are more, their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.replication.core import DuplicateConflict
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

CONFLICT_LOG_INTERVAL_S: Final = 60.0
"""Interval at which the number of further conflicts is logged."""

MAX_LOGGED_PUBLISHERS: Final = 1000
"""Publishers counted separately; those beyond that share one count for each source."""


@dataclass(slots=True)
class _Count:
    """Conflicts of one publisher that have not been logged."""

    since_s: float
    count: int = 0
    last: DuplicateConflict | None = None


class DuplicateConflictLog:
    """Counts conflicts, and logs them, rate-limited.

    Args:
        clock: the time, and timers.
        log: the event log.

    Attributes:
        count: total number of conflicts.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self.count = 0
        self._clock: Final = clock
        self._log: Final = log
        self._counts: dict[tuple[str, int], _Count] = {}

    def record_conflicts(self, source: str, conflicts: Sequence[DuplicateConflict]) -> None:
        """Count messages that were not recorded, because others have the same bookmarks.

        Args:
            source: name of the instance that has sent them.
            conflicts: the messages.
        """
        self.count += len(conflicts)
        for conflict in conflicts:
            key = source, conflict.client
            if len(self._counts) >= MAX_LOGGED_PUBLISHERS and key not in self._counts:
                key = source, 0
            pending = self._counts.get(key)
            if pending is None:
                self._start_interval(key, conflict)
            else:
                pending.count += 1
                pending.last = conflict

    def _start_interval(self, key: tuple[str, int], conflict: DuplicateConflict) -> None:
        self._counts[key] = _Count(self._clock.steady())
        self._log.emit(
            "1E-0006",
            other=key[0],
            topic=conflict.topic.name,
            identity=conflict.client,
            sequence=conflict.sequence,
        )
        self._clock.call_later(CONFLICT_LOG_INTERVAL_S, lambda: self._log_summary(key))

    def _log_summary(self, key: tuple[str, int]) -> None:
        """Log the number of further conflicts; if there are none, the next one is logged anew."""
        pending = self._counts.pop(key)
        if pending.last is None:
            return
        now = self._clock.steady()
        self._counts[key] = _Count(now)
        self._log.emit(
            "1E-0010",
            other=key[0],
            count=pending.count,
            topic=pending.last.topic.name,
            identity=pending.last.client,
            sequence=pending.last.sequence,
            age=timedelta(seconds=max(int(now - pending.since_s), 0)),
        )
        self._clock.call_later(CONFLICT_LOG_INTERVAL_S, lambda: self._log_summary(key))
