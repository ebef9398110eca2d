"""Conflation: of several messages with the same key in an interval, a subscriber gets the last.

The timer of a key starts with its first message, which therefore waits for the whole interval as
well; messages that follow take its place in the queue, not its time. All intervals of a
subscription are equal, so that messages fall due in the order in which their keys appeared: one
queue and one timer serve any number of keys. With an automatic interval, a client that has not read
what it was sent is given another interval.

Source: AMPS User Guide, Conflated Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.subscriptions.envelope import Envelope

if TYPE_CHECKING:
    from server.clock import Clock
    from server.message_types.base import Extractor, MessageType, Path
    from server.subscriptions.delivery import Delivery

AUTOMATIC_INTERVAL: Final = 0.1
"""Seconds between two looks at whether a client keeps up, where the interval is `auto`."""


@dataclass(frozen=True, slots=True)
class ConflationTerms:
    """What a subscriber asked for.

    Attributes:
        interval: seconds.
        automatic: whether the interval is stretched while the client does not keep up.
        keys: the fields that tell messages apart.
    """

    interval: float
    automatic: bool
    keys: tuple[Path, ...]


@dataclass(slots=True)
class _Pending:
    due: float
    body: bytes
    envelope: Envelope
    delivery: Delivery


class Conflater:
    """The messages of one subscription that wait for their interval to pass.

    Args:
        terms: what the subscriber asked for.
        message_type: how keys are read.
        clock: tells when.
        is_behind: whether the client has unread data.
        flush: called after messages have been delivered.
    """

    def __init__(
        self,
        terms: ConflationTerms,
        message_type: MessageType,
        clock: Clock,
        is_behind: Callable[[], bool],
        flush: Callable[[], None],
    ) -> None:
        self._terms = terms
        self._extract: Extractor = message_type.extractor(terms.keys)
        self._clock = clock
        self._is_behind = is_behind
        self._flush = flush
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._cancel: Callable[[], None] | None = None

    def take(self, topic: str, body: bytes, envelope: Envelope, delivery: Delivery) -> None:
        """Let a message wait, in place of an earlier one with the same key.

        Args:
            topic: the message's topic.
            body: its body.
            envelope: what is known of it; that of the first message of a key is kept, so that a
                timestamp tells since when the subscriber has been waiting.
            delivery: delivers it when the time has come.
        """
        key = topic, repr(self._extract(body))
        waiting = self._pending.get(key)
        if waiting is not None:
            waiting.body = body
            waiting.delivery = delivery
            return
        due = self._clock.now() + self._terms.interval
        self._pending[key] = _Pending(due, body, envelope, delivery)
        if self._cancel is None:
            self._cancel = self._clock.call_later(self._terms.interval, self._deliver_due)

    def close(self) -> None:
        """Forget what waits; the subscription has ended."""
        self._pending.clear()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _deliver_due(self) -> None:
        self._cancel = None
        now = self._clock.now()
        if self._terms.automatic and self._is_behind():
            self._cancel = self._clock.call_later(self._terms.interval, self._deliver_due)
            return
        while self._pending:
            key, first = next(iter(self._pending.items()))
            if first.due > now:
                self._cancel = self._clock.call_later(first.due - now, self._deliver_due)
                break
            del self._pending[key]
            first.delivery.deliver((first.body,), first.envelope)
        self._flush()


class ConflatedDelivery:
    """Hands messages of one topic to a subscription's conflater.

    Args:
        conflater: lets them wait.
        topic: the topic's name.
        delivery: delivers what has waited long enough.
    """

    __slots__ = ("_conflater", "_delivery", "_topic")

    def __init__(self, conflater: Conflater, topic: str, delivery: Delivery) -> None:
        self._conflater = conflater
        self._topic = topic
        self._delivery = delivery

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Let messages wait."""
        for body in bodies:
            self._conflater.take(self._topic, body, envelope, self._delivery)
