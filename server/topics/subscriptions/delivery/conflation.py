"""Conflation: of several messages with the same key in an interval, a subscriber gets the last.

The timer of a key starts with its first message, which therefore waits for the whole interval as
well; later messages replace it without a change of its due time. All intervals of a subscription
are equal, so that messages fall due in the order in which their keys appeared: one queue and one
timer serve any number of keys. Due messages are released in time slices, since a client may have
very many subscriptions, or keys, that fall due at the same moment; a message that comes before the
release of its key still replaces the one that waits. With an automatic interval, a client that has
not read all its data gets another interval.

Waiting messages are charged to the client's memory, by estimate: the bytes of bodies are exact, the
rest is a constant per message.

Sources: AMPS User Guide, Conflated Subscriptions; Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, Self

from server.topics.subscriptions.delivery.focus_state import FocusKey, FocusState

if TYPE_CHECKING:
    from server.engine.replays.replay_clock import ReplayClock
    from server.message_types.base import Extractor, MessageType
    from server.message_types.paths import Path
    from server.util.clock import Clock
    from server.util.task import EngineTask

AUTOMATIC_INTERVAL: Final = 0.1
"""Seconds between two checks whether a client keeps up, where the interval is `auto`."""

_BATCH_SIZE: Final = 16
"""Messages released between two readings of the clock."""

_MESSAGE_BYTES: Final = 600
"""Bytes that a waiting message takes, apart from its body."""


@dataclass(frozen=True, slots=True)
class ConflationTerms:
    """The conflation options of a subscription.

    Attributes:
        interval_s: seconds.
        is_automatic: whether the interval is extended while the client does not keep up.
        key_fields: the fields that form the conflation key; if empty, the SOW key is used.
    """

    interval_s: float
    is_automatic: bool
    key_fields: tuple[Path, ...]


class ConflatedMessage(Protocol):
    """A message that waits for its interval to pass."""

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies that are kept for the client."""

    def merge_later(self, later: Self) -> None:
        """Replace or merge this message with a later one of the same key."""

    def send(self) -> None:
        """Send this message to the client."""


class Conflater:
    """The messages of one subscription that wait for their interval to pass.

    Args:
        terms: the conflation options.
        message_type: extracts keys from bodies.
        clock: the timer.
        is_behind: returns whether the client has unread data.
        flush: called after messages have been delivered.
        charge_memory: charges bytes to the client, negative to release.
        has_all_that_matches: whether the subscription is for records, and its client had all
            matching ones when it began.
        slices: queues the release of due messages for time slices, with the client's name; None if
            the clock is the time of a replay, which continues when all due messages have left.

    Attributes:
        focus_state: the client's states of records, for `oof` messages; None if they follow from
            the records (server/topics/subscriptions/delivery/record_conflation.py).
        task_label: see `EngineTask.task_label`.
    """

    def __init__(
        self,
        terms: ConflationTerms,
        message_type: MessageType,
        clock: Clock | ReplayClock,
        is_behind: Callable[[], bool],
        flush: Callable[[], None],
        charge_memory: Callable[[int], None],
        *,
        has_all_that_matches: bool = False,
        slices: tuple[Callable[[EngineTask], None], str] | None = None,
    ) -> None:
        self.focus_state: FocusState | None = (
            None if has_all_that_matches else FocusState(charge_memory)
        )
        self._terms = terms
        self._extract_key: Extractor | None = (
            message_type.extractor(terms.key_fields) if terms.key_fields else None
        )
        self._clock = clock
        self._is_behind = is_behind
        self._flush = flush
        self._charge_memory = charge_memory
        # Released from the front, where a plain dict would scan all entries released before.
        self._pending: OrderedDict[FocusKey, tuple[float, ConflatedMessage]] = OrderedDict()
        self._cancel_timer: Callable[[], None] | None = None
        self._is_releasing = False
        self._queue_task: Callable[[EngineTask], None] | None = None
        client = ""
        if slices is not None:
            self._queue_task, client = slices
        self.task_label: Final = client, "conflation"

    @property
    def pending_count(self) -> int:
        """Number of waiting messages."""
        return len(self._pending)

    def conflation_key(self, topic: str, body: bytes, sow_key: str | None) -> FocusKey | None:
        """Return the conflation key of a message; None if it has neither key fields nor SOW key."""
        if self._extract_key is not None:
            return topic, repr(self._extract_key(body))
        return None if sow_key is None else (topic, sow_key)

    def add_message(self, key: FocusKey, message: ConflatedMessage) -> None:
        """Queue a message, or merge it into a waiting one with the same key."""
        pending = self._pending.get(key)
        if pending is not None:
            _, earlier = pending
            body_bytes = earlier.body_bytes
            earlier.merge_later(message)
            self._charge_memory(earlier.body_bytes - body_bytes)
            return
        self._charge_memory(_MESSAGE_BYTES + message.body_bytes)
        self._pending[key] = self._clock.steady() + self._terms.interval_s, message
        if self._cancel_timer is None and not self._is_releasing:
            self._cancel_timer = self._clock.call_later(self._terms.interval_s, self._deliver_due)

    def release_oldest(self, limit: int) -> bool:
        """Release the messages that have waited longest, due or not.

        Args:
            limit: number of messages.

        Returns:
            Whether more messages wait.
        """
        for key in list(islice(self._pending, limit)):
            self._release(key)
        return bool(self._pending)

    def close(self) -> None:
        """Drop waiting messages; the subscription has ended."""
        self._charge_memory(
            -sum(_MESSAGE_BYTES + message.body_bytes for _, message in self._pending.values())
        )
        self._pending.clear()
        if self.focus_state is not None:
            self.focus_state.close()
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _deliver_due(self) -> None:
        self._cancel_timer = None
        if self._terms.is_automatic and self._is_behind():
            self._cancel_timer = self._clock.call_later(self._terms.interval_s, self._deliver_due)
        elif self._queue_task is not None:
            self._is_releasing = True
            self._queue_task(self)
        else:
            if self._release_due(self._clock.steady(), _BATCH_SIZE):
                self._cancel_timer = self._clock.call_later(0, self._deliver_due)
            self._flush()

    def step(self) -> bool:
        """Release some of the due messages. See `EngineTask.step`."""
        self._is_releasing = self._release_due(self._clock.steady(), _BATCH_SIZE)
        return self._is_releasing

    def _release_due(self, now: float, limit: int) -> bool:
        """Release up to `limit` due messages; return True if more may be due."""
        for _ in range(limit):
            if not self._pending:
                return False
            key = next(iter(self._pending))
            due_s, _ = self._pending[key]
            if due_s > now:
                self._cancel_timer = self._clock.call_later(due_s - now, self._deliver_due)
                return False
            self._release(key)
        return bool(self._pending)

    def _release(self, key: FocusKey) -> None:
        _, message = self._pending.pop(key)
        self._charge_memory(-_MESSAGE_BYTES - message.body_bytes)
        message.send()
