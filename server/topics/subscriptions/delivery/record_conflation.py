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

    FULL = "the record"
    DELTA = "what is different"
    OOF = "that it is out of focus"


class ConflatedRecordDelivery:
    """Passes changes of records to a subscription's conflater.

    Args:
        subscription: the subscription, which has a conflater.
        conflater: that conflater.
        topic: the topic's name.
        form: the form of the subscription's messages.
        publish_framer: sends records and deltas.
        oof_framer: sends `oof` messages.
        visibility: limits messages about records that are hidden at times; None for no limit.
        had_match: whether the subscription matched the record's state before the changes.
    """

    __slots__ = (
        "conflater",
        "form",
        "had_match",
        "oof_framer",
        "publish_framer",
        "subscription",
        "topic",
        "visibility",
    )

    def __init__(
        self,
        subscription: Subscription,
        conflater: Conflater,
        topic: str,
        form: RecordMessageForm,
        publish_framer: RecordFramer,
        oof_framer: RecordFramer,
        visibility: EntitlementVisibility | None,
        *,
        had_match: bool,
    ) -> None:
        self.subscription = subscription
        self.conflater = conflater
        self.topic = topic
        self.form = form
        self.publish_framer = publish_framer
        self.oof_framer = oof_framer
        self.visibility = visibility
        self.had_match = had_match

    def deliver(self, message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        body, form = b"", self.form
        presentation = self.subscription.presentation
        if (
            form is RecordMessageForm.DELTA
            and self.visibility is not None
            and self.visibility.was_hidden(message)
        ):
            form = RecordMessageForm.FULL
        if form is RecordMessageForm.FULL:
            body = presentation.select_fields(message.body)
        elif form is RecordMessageForm.DELTA:
            delta = message.delta(presentation)
            if delta is None and self.subscription.omits_empty_deltas:
                return
            body = message.key_fields_only(presentation) if delta is None else delta
        permitted_body = presentation.select_permitted(message.body)
        key = self.conflater.conflation_key(self.topic, permitted_body, message.key) or (
            self.topic,
            message.key,
        )
        self.conflater.add_message(key, _PendingRecord(self, form, key, message, body))


class _PendingRecord:
    """The message that waits for one record."""

    __slots__ = (
        "_bookmark",
        "_delivery",
        "_form",
        "_key",
        "_message",
        "_pending_oof",
        "_previous",
        "_received_s",
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
        envelope = message.envelope  # shared by a batch, and mutated for its next message
        self._received_s, self._bookmark = envelope.received_s, envelope.bookmark
        follows = delivery.subscription.tracks_focus and delivery.conflater.focus_state is None
        self._previous = message.previous if follows and delivery.had_match else None
        self._pending_oof: tuple[ConflatedRecordDelivery, RecordMessage] | None = None

    @property
    def body_bytes(self) -> int:
        """See `ConflatedMessage.body_bytes`."""
        return len(self.body) + len(self._previous or b"")

    def merge_later(self, later: Self) -> None:
        """See `ConflatedMessage.merge_later`."""
        if self._form is RecordMessageForm.OOF and later._form is not RecordMessageForm.OOF:
            self._pending_oof = self._pending_oof or (self._delivery, self._message)
        if later._form is not RecordMessageForm.DELTA or self._form is RecordMessageForm.OOF:
            self._form = later._form
            self.body = later.body
        elif self._form is RecordMessageForm.DELTA:
            self.body = later._message.merge_deltas(self.body, later.body)
        else:
            self.body = later._delivery.subscription.presentation.select_fields(later._message.body)
        self._message = later._message
        self._delivery = later._delivery

    def send(self) -> None:
        """See `ConflatedMessage.send`."""
        subscription, conflater = self._delivery.subscription, self._delivery.conflater
        first_envelope = self._message.envelope.with_time_and_bookmark(
            self._received_s, self._bookmark
        )
        if self._form is RecordMessageForm.OOF:
            client_state = self._client_state()
            if conflater.focus_state is not None:
                conflater.focus_state.pop(self._key)
            if client_state is not None:
                visibility, message = self._delivery.visibility, self._message
                if visibility is not None:
                    message = visibility.visible_message(message)
                self._delivery.oof_framer.write(message, client_state, first_envelope)
            return
        if (
            self._pending_oof is not None
            and subscription.sends_deltas
            and self._pending_oof[1].reason != MATCH
        ):
            # A new record replaced a deleted one: a delta cannot tell which fields of the old one
            # the new one lacks.
            client_state = self._client_state()
            if client_state is not None:
                delivery, message = self._pending_oof
                delivery.oof_framer.write(message, client_state, first_envelope)
        if subscription.tracks_focus and conflater.focus_state is not None:
            body = subscription.presentation.select_fields(self._message.body)
            conflater.focus_state.put(self._key, body)
        self._delivery.publish_framer.write(self._message, self.body, first_envelope)

    def _client_state(self) -> bytes | None:
        """Return the record as the client has it before this message; None if it has none."""
        focus_state = self._delivery.conflater.focus_state
        if focus_state is not None:
            return focus_state.get(self._key)
        if self._previous is None:
            return None
        return self._delivery.subscription.presentation.select_fields(self._previous)
