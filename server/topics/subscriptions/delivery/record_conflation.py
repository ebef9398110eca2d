"""Conflation of changes of records.

A later publish replaces one that waits, or is merged with it if both are deltas. A record that goes
out of focus while a publish waits is reported with the state that the client has; if the client has
none, nothing is sent. A record that comes back into focus in the same interval never left; but a
delta subscriber gets both messages if it was deleted meanwhile, for a delta cannot remove fields.

If the subscription began with a query for all matching records, the client's state of a record
without a waiting message follows from the record: the current one if it matches, else none. So the
client's state at the first change of an interval is the state before that change, if this one
matched. That holds during queries, too: their pending results and `oof` messages precede all
messages of this module. For other subscriptions the states last sent have to be kept
(server/topics/subscriptions/delivery/focus_state.py).

Source: AMPS User Guide, Out-of-Focus Messages and Conflated Topics.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Self

from server.topics.subscriptions.delivery.record_delivery import MATCH

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.conflation import Conflater
    from server.topics.subscriptions.delivery.focus_state import FocusKey
    from server.topics.subscriptions.delivery.record_delivery import RecordFramer, RecordMessage
    from server.topics.subscriptions.entitlement_limits import EntitlementVisibility
    from server.topics.subscriptions.subscription import Subscription


class RecordMessageForm(Enum):
    """The form of a subscription's message about a change."""

    WHOLE = "the record"
    DELTA = "what is different"
    LEAVING = "that it is out of focus"


class ConflatedRecordDelivery:
    """Passes changes of records to a subscription's conflater.

    Args:
        subscription: the subscription, which has a conflater.
        conflater: that conflater.
        topic: the topic's name.
        form: the form of the subscription's messages.
        publish: sends records and deltas.
        leave: sends `oof` messages.
        barrier: limits messages about records that are hidden at times; None for no limit.
        had: whether the subscription matched the record's state before the changes.
    """

    __slots__ = (
        "barrier",
        "conflater",
        "form",
        "had",
        "leave",
        "publish",
        "subscription",
        "topic",
    )

    def __init__(
        self,
        subscription: Subscription,
        conflater: Conflater,
        topic: str,
        form: RecordMessageForm,
        publish: RecordFramer,
        leave: RecordFramer,
        barrier: EntitlementVisibility | None,
        *,
        had: bool,
    ) -> None:
        self.subscription = subscription
        self.conflater = conflater
        self.topic = topic
        self.form = form
        self.publish = publish
        self.leave = leave
        self.barrier = barrier
        self.had = had

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        body, form = b"", self.form
        presentation = self.subscription.presentation
        if (
            form is RecordMessageForm.DELTA
            and self.barrier is not None
            and self.barrier.hid(message)
        ):
            form = RecordMessageForm.WHOLE
        if form is RecordMessageForm.WHOLE:
            body = presentation.cut(message.body)
        elif form is RecordMessageForm.DELTA:
            delta = message.delta(presentation)
            if delta is None and self.subscription.no_empties:
                return
            body = message.only_keys(presentation) if delta is None else delta
        seen = presentation.seen(message.body)
        key = self.conflater.key(self.topic, seen, message.key) or (self.topic, message.key)
        self.conflater.take(key, _PendingRecord(self, form, key, message, body))


class _PendingRecord:
    """The message that waits for one record."""

    __slots__ = (
        "_bookmark",
        "_delivery",
        "_form",
        "_gone",
        "_key",
        "_message",
        "_previous",
        "_received",
        "body",
    )

    def __init__(
        self,
        delivery: ConflatedRecordDelivery,
        form: RecordMessageForm,
        key: FocusKey,
        message: RecordMessage,
        body: bytes,
    ) -> None:
        self._delivery = delivery
        self._form = form
        self._key = key
        self._message = message
        self.body = body
        envelope = message.envelope  # shared by a run, and mutated for its next message
        self._received, self._bookmark = envelope.received, envelope.bookmark
        follows = delivery.subscription.tracks_focus and delivery.conflater.received is None
        self._previous = message.previous if follows and delivery.had else None
        self._gone: tuple[ConflatedRecordDelivery, RecordMessage] | None = None

    @property
    def size(self) -> int:
        """See `ConflatedMessage.size`."""
        return len(self.body) + len(self._previous or b"")

    def absorb(self, later: Self) -> None:
        """See `ConflatedMessage.absorb`."""
        if self._form is RecordMessageForm.LEAVING and later._form is not RecordMessageForm.LEAVING:
            self._gone = self._gone or (self._delivery, self._message)
        if later._form is not RecordMessageForm.DELTA or self._form is RecordMessageForm.LEAVING:
            self._form = later._form
            self.body = later.body
        elif self._form is RecordMessageForm.DELTA:
            self.body = later._message.merge_deltas(self.body, later.body)
        else:
            self.body = later._delivery.subscription.presentation.cut(later._message.body)
        self._message = later._message
        self._delivery = later._delivery

    def release(self) -> None:
        """See `ConflatedMessage.release`."""
        subscription, conflater = self._delivery.subscription, self._delivery.conflater
        first = self._message.envelope.held_since(self._received, self._bookmark)
        if self._form is RecordMessageForm.LEAVING:
            known = self._known()
            if conflater.received is not None:
                conflater.received.pop(self._key)
            if known is not None:
                barrier, message = self._delivery.barrier, self._message
                if barrier is not None:
                    message = barrier.told(message)
                self._delivery.leave.write(message, known, first)
            return
        if self._gone is not None and subscription.delta and self._gone[1].reason != MATCH:
            # A new record replaced a deleted one: a delta cannot tell which fields of the old one
            # the new one lacks.
            known = self._known()
            if known is not None:
                delivery, message = self._gone
                delivery.leave.write(message, known, first)
        if subscription.tracks_focus and conflater.received is not None:
            whole = subscription.presentation.cut(self._message.body)
            conflater.received.put(self._key, whole)
        self._delivery.publish.write(self._message, self.body, first)

    def _known(self) -> bytes | None:
        """Return the record as the client has it before this message; None if it has none."""
        received = self._delivery.conflater.received
        if received is not None:
            return received.get(self._key)
        if self._previous is None:
            return None
        return self._delivery.subscription.presentation.cut(self._previous)
