"""What time does to topics with records: records expire, and past states leave their windows.

One timer is set for whatever is due next. Then all that is due goes, in slices (see
server/core/turns.py): very many records may expire in the same moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from server.base.clock import MIN_STEP_S, WallSeconds
from server.sow.records import to_nanoseconds, to_seconds
from server.sow.store import StoreError
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import EXPIRED

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.sow.records import Change
    from server.sow.topic import SowTopic

_AT_ONCE: Final = 50
"""Records that are removed in a slice."""
_LEAST_DELAY: Final = 0.001
"""Seconds; what expires sooner than that after something else is removed together with it."""
_RETRY_SECONDS: Final = 1.0
"""Until expiring is tried again after a store could not write it down."""


class Aging(Protocol):
    """The topics with records that clients publish to."""

    @property
    def topics(self) -> Iterable[SowTopic]:
        """These topics."""

    @property
    def announce(self) -> Callable[[str, list[Change], Envelope, str], None]:
        """Tells subscribers of a message type about changes, and why records are gone."""

    def expiry_sequence(self, sow: SowTopic) -> int:
        """The number of an expiration."""

    def keep(self, sow: SowTopic) -> None:
        """Let a topic be put on stable storage soon."""


class Expiration:
    """Removes what has expired.

    Args:
        stores: the topics; told of what changes.
        clock: tells the time.
        log: where failures are said.
        start: begins work that is done in slices; see `Turns.start`.
        flush: called after subscribers have been told.
    """

    def __init__(
        self,
        stores: Aging,
        clock: Clock,
        log: Log,
        start: Callable[[Sliced], None],
        flush: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._log = log
        self._start = start
        self._flush = flush
        self._expires_at: WallSeconds | None = None
        self._cancel: Callable[[], None] = _nothing
        self._due: deque[SowTopic] = deque()  # those of which something has to go now
        self._failed: set[SowTopic] = set()  # those of which it is said that it could not go

    def watch(self, sow: SowTopic) -> None:
        """Take note that a topic has changed, or is new."""
        moment = sow.next_expiry()
        if moment is not None:
            self._look_at(WallSeconds(to_seconds(moment)))

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return "", "expiration"

    def step(self) -> bool:
        """Remove some of what is due. See `Sliced.step`."""
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
        """Return the wall-clock time; after a pause, that of its beginning.

        The steady clock stands still until what came in the pause has been read, which may publish
        records again. At other times the two are apart by less than a step.
        """
        latest = self._clock.steady() + self._clock.ahead + MIN_STEP_S
        return WallSeconds(min(self._clock.now(), latest))

    def clock_was_set(self, seconds: float) -> None:
        """Keep the moments at which to look, which are of the wall clock as it is set now."""
        if self._expires_at is not None:
            self._expires_at = WallSeconds(self._expires_at + seconds)

    def _look_at(self, moment: WallSeconds) -> None:
        """Look for what has expired at a moment, unless that will be done earlier."""
        if self._expires_at is None or moment < self._expires_at:
            self._cancel()
            self._expires_at = moment
            delay = max(_LEAST_DELAY, moment - self._clock.now())
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
    def _is_due(sow: SowTopic, now: WallSeconds) -> bool:
        moment = sow.next_expiry()
        return moment is not None and moment <= to_nanoseconds(now)

    def _expire_some(self, sow: SowTopic, now: WallSeconds) -> bool:
        """Remove what has expired in a topic; False if that cannot be written down."""
        stores = self._stores
        moment, sequence = to_nanoseconds(now), stores.expiry_sequence(sow)
        envelope = Envelope(None, now)
        stores.keep(sow)
        try:
            for _ in range(_AT_ONCE):
                change = sow.expire(moment, sequence)
                if change is None:
                    break
                stores.announce(sow.spec.message_type, [change], envelope, EXPIRED)
        except StoreError as error:
            if sow not in self._failed:
                self._failed.add(sow)
                self._log.emit("15-0011", topic=sow.spec.name, reason=error)
            return False
        self._failed.discard(sow)
        return True


def _nothing() -> None:
    """Cancel no call."""
