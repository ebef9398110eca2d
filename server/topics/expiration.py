"""Time-based removal in topics with records: records expire, and past states leave their windows.

One timer is set for the earliest due time. Then everything due is removed, in time slices (see
server/engine/scheduler.py): very many records may expire at the same moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.storage.sow.records import to_nanoseconds, to_seconds
from server.storage.sow.store import RecordStoreError
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_delivery import EXPIRED
from server.util.clock import MIN_STEP_S, WallSeconds

if TYPE_CHECKING:
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.sow_registry import SowRegistry
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

_BATCH_SIZE: Final = 50
"""Records that are removed in one time slice."""
_MIN_DELAY: Final = 0.001
"""Seconds; records that expire within this delay of each other are removed together."""
_RETRY_INTERVAL_S: Final = 1.0
"""Delay before expiration is retried after a store could not write it."""


class Expiration:
    """Removes expired records.

    Args:
        sow_registry: the topics; notified of changes.
        clock: the clock.
        log: receives failures.
        start_task: starts work that is done in time slices; see `Scheduler.start_task`.
        flush: called after subscribers have been notified.
    """

    def __init__(
        self,
        sow_registry: SowRegistry,
        clock: Clock,
        log: ServerLog,
        start_task: Callable[[EngineTask], None],
        flush: Callable[[], None],
    ) -> None:
        self._sow_registry = sow_registry
        self._clock = clock
        self._log = log
        self._start_task = start_task
        self._flush = flush
        self._next_check_s: WallSeconds | None = None
        self._cancel_check: Callable[[], None] = _cancel_nothing
        self._due_topics: deque[SowTopicRecords] = deque()  # topics with something to remove now
        self._failed_topics: set[SowTopicRecords] = set()  # topics with a logged failure to remove

    def schedule_check(self, sow: SowTopicRecords) -> None:
        """Schedule a check of a topic that has changed, or is new."""
        next_expiry = sow.next_expiry()
        if next_expiry is not None:
            self._schedule_at(WallSeconds(to_seconds(next_expiry)))

    def forget(self, sow: SowTopicRecords) -> None:
        """Check a topic no more that has been removed."""
        if sow in self._due_topics:
            self._due_topics.remove(sow)
        self._failed_topics.discard(sow)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "", "expiration"

    def step(self) -> bool:
        """Remove some due records and past states. See `EngineTask.step`."""
        if self._due_topics:
            sow, now = self._due_topics[0], self._now()
            if not self._expire_batch(sow, now):
                self._due_topics.popleft()
                self._schedule_at(WallSeconds(now + _RETRY_INTERVAL_S))
            elif not self._is_due(sow, now):
                self._due_topics.popleft()
                self.schedule_check(sow)
        return bool(self._due_topics)

    def _now(self) -> WallSeconds:
        """Return the wall-clock time; after a pause, the time at which the pause began.

        The steady clock stands still until the input received during the pause has been read, which
        may publish records again. At other times the two differ by less than a step.
        """
        latest = self._clock.steady() + self._clock.wall_offset_s + MIN_STEP_S
        return WallSeconds(min(self._clock.now(), latest))

    def shift_next_check(self, seconds: float) -> None:
        """Shift the time of the next check, which is on the wall clock, with that clock."""
        if self._next_check_s is not None:
            self._next_check_s = WallSeconds(self._next_check_s + seconds)

    def _schedule_at(self, check_s: WallSeconds) -> None:
        """Schedule a check for expired records, unless an earlier one is scheduled."""
        if self._next_check_s is None or check_s < self._next_check_s:
            self._cancel_check()
            self._next_check_s = check_s
            delay = max(_MIN_DELAY, check_s - self._clock.now())
            self._cancel_check = self._clock.call_later(delay, self._queue_due_topics)

    def _queue_due_topics(self) -> None:
        self._next_check_s = None
        now, is_idle = self._clock.now(), not self._due_topics
        for sow in self._sow_registry.topics:
            if sow in self._due_topics:
                continue
            if self._is_due(sow, now):
                self._due_topics.append(sow)
            else:
                self.schedule_check(sow)
        if is_idle and self._due_topics:
            self._start_task(self)
        self._flush()

    @staticmethod
    def _is_due(sow: SowTopicRecords, now: WallSeconds) -> bool:
        next_expiry = sow.next_expiry()
        return next_expiry is not None and next_expiry <= to_nanoseconds(now)

    def _expire_batch(self, sow: SowTopicRecords, now: WallSeconds) -> bool:
        """Remove a batch of a topic's expired records; return False if that cannot be written."""
        sow_registry = self._sow_registry
        now_ns, sequence = to_nanoseconds(now), sow_registry.expiry_sequence(sow)
        envelope = Envelope(None, now)
        sow_registry.schedule_commit(sow)
        try:
            for _ in range(_BATCH_SIZE):
                change = sow.expire(now_ns, sequence)
                if change is None:
                    break
                sow_registry.announce(sow.spec.message_type, [change], envelope, EXPIRED)
        except RecordStoreError as error:
            if sow not in self._failed_topics:
                self._failed_topics.add(sow)
                self._log.emit("15-0011", topic=sow.spec.name, reason=error)
            return False
        self._failed_topics.discard(sow)
        return True


def _cancel_nothing() -> None:
    """Cancel no call."""
