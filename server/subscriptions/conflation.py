"""Conflation: of several messages with the same key in an interval, a subscriber gets the last.

The timer of a key starts with its first message, which therefore waits for the whole interval as
well; messages that follow take its place in the queue, not its time. All intervals of a
subscription are equal, so that messages fall due in the order in which their keys appeared: one
queue and one timer serve any number of keys. What has fallen due leaves in slices, since a client
may have very many subscriptions, or keys, that do so at the same moment; messages that come for a
key before its turn still take the place of the one that waits. With an automatic interval, a client
that has not read what it was sent is given another interval.

What waits counts as memory of the client. The reckoning is by rule of thumb: bodies are counted,
the rest is an estimate.

Sources: AMPS User Guide, Conflated Subscriptions; Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, Self

from server.subscriptions.received import Key, Received

if TYPE_CHECKING:
    from server.base.clock import Timer
    from server.base.slices import Sliced
    from server.message_types.base import Extractor, MessageType
    from server.message_types.paths import Path

AUTOMATIC_INTERVAL: Final = 0.1
"""Seconds between two looks at whether a client keeps up, where the interval is `auto`."""

_AT_ONCE: Final = 16
"""Messages that leave before the clock is looked at."""

_MESSAGE: Final = 600
"""Bytes that a message takes while it waits, apart from its body."""


@dataclass(frozen=True, slots=True)
class ConflationTerms:
    """What a subscriber asked for.

    Attributes:
        interval: seconds.
        automatic: whether the interval is stretched while the client does not keep up.
        keys: the fields that tell messages apart; without any it is the SOW key.
    """

    interval: float
    automatic: bool
    keys: tuple[Path, ...]


class Pending(Protocol):
    """A message that waits for its interval to pass."""

    @property
    def size(self) -> int:
        """How many bytes of bodies are kept for the client."""

    def absorb(self, later: Self) -> None:
        """Become what a later message with the same key makes of it."""

    def release(self) -> None:
        """Leave for the client."""


class Conflater:
    """The messages of one subscription that wait for their interval to pass.

    Args:
        terms: what the subscriber asked for.
        message_type: how keys are read.
        clock: tells when.
        is_behind: whether the client has unread data.
        flush: called after messages have been delivered.
        hold: takes note of bytes that are kept for the client from now on, or no more.
        has_all_that_matches: the subscription is for records, and its client had all that matched
            when it began.
        slices: has what is due leave in turns with other work, for a client; None if the clock is
            the time of a replay, which goes on when everything that is due has left.

    Attributes:
        received: what the client has of records that it is to be told about when they go out of
            focus; None if that follows from the records (server/subscriptions/record_conflation.py)
        doing: see `Sliced.doing`.
    """

    def __init__(
        self,
        terms: ConflationTerms,
        message_type: MessageType,
        clock: Timer,
        is_behind: Callable[[], bool],
        flush: Callable[[], None],
        hold: Callable[[int], None],
        *,
        has_all_that_matches: bool = False,
        slices: tuple[Callable[[Sliced], None], str] | None = None,
    ) -> None:
        self.received: Received | None = None if has_all_that_matches else Received(hold)
        self._terms = terms
        self._extract: Extractor | None = message_type.extractor(terms.keys) if terms.keys else None
        self._clock = clock
        self._is_behind = is_behind
        self._flush = flush
        self._hold = hold
        self._pending: dict[Key, tuple[float, Pending]] = {}
        self._cancel: Callable[[], None] | None = None
        self._is_leaving = False
        self._queue: Callable[[Sliced], None] | None = None
        client = ""
        if slices is not None:
            self._queue, client = slices
        self.doing: Final = client, "conflation"

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._pending)

    def key(self, topic: str, body: bytes, sow_key: str | None) -> Key | None:
        """What a message is conflated by; None if there is nothing that could tell it apart."""
        if self._extract is not None:
            return topic, repr(self._extract(body))
        return None if sow_key is None else (topic, sow_key)

    def take(self, key: Key, message: Pending) -> None:
        """Let a message wait, or an earlier one with the same key absorb it."""
        waiting = self._pending.get(key)
        if waiting is not None:
            _, earlier = waiting
            size = earlier.size
            earlier.absorb(message)
            self._hold(earlier.size - size)
            return
        self._hold(_MESSAGE + message.size)
        self._pending[key] = self._clock.steady() + self._terms.interval, message
        if self._cancel is None and not self._is_leaving:
            self._cancel = self._clock.call_later(self._terms.interval, self._deliver_due)

    def release_some(self, most: int) -> bool:
        """Let leave what has waited for longest, whether it is due or not.

        Args:
            most: how many messages.

        Returns:
            Whether there are more.
        """
        for key in list(islice(self._pending, most)):
            self._release(key)
        return bool(self._pending)

    def close(self) -> None:
        """Forget what waits; the subscription has ended."""
        self._hold(-sum(_MESSAGE + message.size for _, message in self._pending.values()))
        self._pending.clear()
        if self.received is not None:
            self.received.close()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _deliver_due(self) -> None:
        self._cancel = None
        if self._terms.automatic and self._is_behind():
            self._cancel = self._clock.call_later(self._terms.interval, self._deliver_due)
        elif self._queue is not None:
            self._is_leaving = True
            self._queue(self)
        else:
            if self._release_due(self._clock.steady(), _AT_ONCE):
                self._cancel = self._clock.call_later(0, self._deliver_due)
            self._flush()

    def step(self) -> bool:
        """Let some of what is due leave. See `Sliced.step`."""
        self._is_leaving = self._release_due(self._clock.steady(), _AT_ONCE)
        return self._is_leaving

    def _release_due(self, now: float, most: int) -> bool:
        """Let messages leave that are due; whether there may be more of them."""
        for _ in range(most):
            if not self._pending:
                return False
            key, (due, _) = next(iter(self._pending.items()))
            if due > now:
                self._cancel = self._clock.call_later(due - now, self._deliver_due)
                return False
            self._release(key)
        return bool(self._pending)

    def _release(self, key: Key) -> None:
        _, message = self._pending.pop(key)
        self._hold(-_MESSAGE - message.size)
        message.release()
