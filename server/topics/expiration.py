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
_RETRY_SECONDS: Final = 1.0
"""Delay before expiration is retried after a store could not write it."""


class Expiration:
    """Removes expired records.

    Args:
        stores: the topics; notified of changes.
        clock: the clock.
        log: receives failures.
        start: starts work that is done in time slices; see `Scheduler.start`.
        flush: called after subscribers have been notified.
    """

    def __init__(
        self,
        stores: SowRegistry,
        clock: Clock,
        log: ServerLog,
        start: Callable[[EngineTask], None],
        flush: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._log = log
        self._start = start
        self._flush = flush
        self._expires_at: WallSeconds | None = None
        self._cancel: Callable[[], None] = _nothing
        self._due: deque[SowTopicRecords] = deque()  # topics with something to remove now
        self._failed: set[SowTopicRecords] = set()  # topics with a logged failure to remove

    def watch(self, sow: SowTopicRecords) -> None:
        """Schedule a check of a topic that has changed, or is new."""
        moment = sow.next_expiry()
        if moment is not None:
            self._look_at(WallSeconds(to_seconds(moment)))

    @property
    def doing(self) -> tuple[str, str]:
        """See `EngineTask.doing`."""
        return "", "expiration"

    def step(self) -> bool:
        """Remove some due records and past states. See `EngineTask.step`."""
        if self._due:
            sow, now = self._due[0], self._now()
            if not self._expire_some(sow, now):
                self._due.popleft()
                self._look_at(WallSeconds(now + _RETRY_SECONDS))
            elif not self._is_due(sow, now):
                self._due.popleft()
                self.watch(sow)
        return bool(self._due)

    def _now(self) -> WallSeconds:
        """Return the wall-clock time; after a pause, the time at which the pause began.

        The steady clock stands still until the input received during the pause has been read, which
        may publish records again. At other times the two differ by less than a step.
        """
        latest = self._clock.steady() + self._clock.ahead + MIN_STEP_S
        return WallSeconds(min(self._clock.now(), latest))

    def clock_was_set(self, seconds: float) -> None:
        """Shift the time of the next check, which is on the wall clock, with that clock."""
        if self._expires_at is not None:
            self._expires_at = WallSeconds(self._expires_at + seconds)

    def _look_at(self, moment: WallSeconds) -> None:
        """Schedule a check for expired records, unless an earlier one is scheduled."""
        if self._expires_at is None or moment < self._expires_at:
            self._cancel()
            self._expires_at = moment
            delay = max(_MIN_DELAY, moment - self._clock.now())
            self._cancel = self._clock.call_later(delay, self._begin)

    def _begin(self) -> None:
        self._expires_at = None
        now, is_idle = self._clock.now(), not self._due
        for sow in self._stores.topics:
            if sow in self._due:
                continue
            if self._is_due(sow, now):
                self._due.append(sow)
            else:
                self.watch(sow)
        if is_idle and self._due:
            self._start(self)
        self._flush()

    @staticmethod
    def _is_due(sow: SowTopicRecords, now: WallSeconds) -> bool:
        moment = sow.next_expiry()
        return moment is not None and moment <= to_nanoseconds(now)

    def _expire_some(self, sow: SowTopicRecords, now: WallSeconds) -> bool:
        """Remove a batch of a topic's expired records; return False if that cannot be written."""
        stores = self._stores
        moment, sequence = to_nanoseconds(now), stores.expiry_sequence(sow)
        envelope = Envelope(None, now)
        stores.keep(sow)
        try:
            for _ in range(_BATCH_SIZE):
                change = sow.expire(moment, sequence)
                if change is None:
                    break
                stores.announce(sow.spec.message_type, [change], envelope, EXPIRED)
        except RecordStoreError as error:
            if sow not in self._failed:
                self._failed.add(sow)
                self._log.emit("15-0011", topic=sow.spec.name, reason=error)
            return False
        self._failed.discard(sow)
        return True


def _nothing() -> None:
    """Cancel no call."""
