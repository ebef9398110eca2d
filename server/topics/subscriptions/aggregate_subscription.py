"""The groups and messages of one aggregated subscription.

Its client sees the groups as it would see the records of a view: a change of a record may change
one group or two, and each changed group is sent like any changed record (AMPS User Guide,
Aggregated Subscriptions).

Until the first records of the groups are on their way, changes wait, merged into one for each
record. Then they are applied, a few at a time, before the subscription is live. A record that
changes meanwhile waits only if a change of it does already, so that the waiting ones become fewer
at any rate of publishing.

A paginated subscription sees some of the groups only: they are ordered in a result set of its own,
from which its page is cut (server/topics/subscriptions/paging/page.py). A subscription to another
page of the same groups takes them over.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from server.topics.subscriptions.delivery.delta import DeltaEncoder
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_conflation import RecordMessageForm
from server.topics.subscriptions.delivery.record_delivery import DELETED, MATCH, RecordMessage
from server.topics.subscriptions.paging.page import Page
from server.topics.subscriptions.paging.result_set import ResultSet

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.storage.sow.records import RecordChange
    from server.storage.views.group_records import GroupRecords
    from server.storage.views.terms import AggregationTerms
    from server.topics.subscriptions.delivery.record_delivery import RecordDelivery
    from server.topics.subscriptions.subscription import Subscription

_BATCH_SIZE: Final = 100
"""Changes applied per slice."""
_PENDING_CHANGE_BYTES: Final = 500
"""Bytes that a waiting change takes, apart from the bodies."""


class _PendingGroupChange(NamedTuple):
    """A change that is not applied yet.

    Attributes:
        change: the change of a record.
        envelope: its origin.
        reason: the reason of the removal, if the record was removed.
    """

    change: RecordChange
    envelope: Envelope
    reason: str

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes."""
        states = (self.change.previous, self.change.record)
        return _PENDING_CHANGE_BYTES + sum(len(state.body) for state in states if state is not None)


class AggregateSubscription:
    """The groups that one subscription follows.

    Args:
        subscription: the subscription.
        terms: the grouping and the aggregates.
        make_delivery: returns the delivery for messages of a form.
        predecessor: the live subscription that transfers its groups; None if there is none.

    Attributes:
        groups: the groups; they are filled by the query that the subscription begins with.
        is_live: whether changes are applied immediately.
        page: its page of the groups, if it is paginated; None for all groups.

    Raises:
        BodyError: the message type has no fields of such names.
    """

    __slots__ = (
        "_deliveries",
        "_delta_encoder",
        "_is_catching_up",
        "_is_replaced",
        "_make_delivery",
        "_pending_changes",
        "_subscription",
        "groups",
        "is_live",
        "page",
    )

    def __init__(
        self,
        subscription: Subscription,
        terms: AggregationTerms,
        make_delivery: Callable[[RecordMessageForm], RecordDelivery],
        predecessor: AggregateSubscription | None,
    ) -> None:
        self._subscription: Final = subscription
        self._delta_encoder: Final = DeltaEncoder(terms.message_type, terms.key_fields)
        self._make_delivery: Final = make_delivery
        self._deliveries: Final[dict[RecordMessageForm, RecordDelivery]] = {}
        self._is_replaced = False
        self.is_live = predecessor is not None
        self.groups: Final[GroupRecords] = (
            terms.create_groups(
                subscription.filter,
                subscription.subscriber.charge_memory,
                subscription.permit.select,
            )
            if predecessor is None
            else predecessor.transfer_groups()
        )
        self.page: Final = self._make_page(terms.message_type, predecessor)
        self._pending_changes: Final[dict[tuple[str, str], _PendingGroupChange]] = {}
        self._is_catching_up = False

    def handle_change(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """Apply a change of a record, or queue it. See `RecordFanout.announce`."""
        key = change.topic, change.key
        earlier = self._pending_changes.get(key)
        if self.is_live or (self._is_catching_up and earlier is None):
            self._apply_change(change, envelope, reason)
            return
        if earlier is not None:
            change = change._replace(previous=earlier.change.previous)
            self._subscription.subscriber.charge_memory(-earlier.size_bytes)
        pending = self._pending_changes[key] = _PendingGroupChange(change, envelope, reason)
        self._subscription.subscriber.charge_memory(pending.size_bytes)

    def catch_up(self) -> bool:
        """Apply some of the waiting changes; return True if there are more."""
        self._is_catching_up = True
        for key in list(islice(self._pending_changes, _BATCH_SIZE)):
            pending = self._pending_changes.pop(key)
            self._subscription.subscriber.charge_memory(-pending.size_bytes)
            self._apply_change(*pending)
        self.is_live = not self._pending_changes
        return not self.is_live

    def transfer_groups(self) -> GroupRecords:
        """Return the groups, for a subscription that replaces this one."""
        self._is_replaced = True
        return self.groups

    def end(self) -> None:
        """Release everything; the subscription has ended."""
        self._subscription.subscriber.charge_memory(
            -sum(change.size_bytes for change in self._pending_changes.values())
        )
        self._pending_changes.clear()
        if self.page is not None:
            self.page.end()
        if not self._is_replaced:
            self.groups.free()

    def _make_page(
        self, message_type: MessageType, predecessor: AggregateSubscription | None
    ) -> Page | None:
        """Return the page, if paginated; it uses the previous page's result set if possible."""
        subscription, terms = self._subscription, self._subscription.page
        if terms is None:
            return None
        result_set: ResultSet | None = None
        if predecessor is not None and predecessor.page is not None:
            result_set = predecessor.page.result_set_for(terms.order_by)
        if result_set is None:
            result_set = ResultSet(message_type, terms.order_by)
        page = Page(
            subscription,
            terms,
            result_set,
            self.groups.find_record,
            self._delta_encoder,
            self._make_delivery,
        )
        result_set.attach(page)
        return page

    def _apply_change(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        for changed in self.groups.apply_change(change, envelope):
            state = changed.record or changed.previous
            if state is None:
                continue
            removal_reason = DELETED if reason == MATCH else reason
            message = RecordMessage(
                changed.key,
                state.body,
                None if changed.previous is None else changed.previous.body,
                Envelope(None, envelope.received_s),
                self._delta_encoder,
                removal_reason if changed.record is None else MATCH,
                "",
                state,
            )
            if self.page is not None:
                self.page.result_set.apply_change(changed.record, changed.previous, message)
            else:
                self._deliver_message(self._message_form(changed), message)

    def _deliver_message(self, form: RecordMessageForm | None, message: RecordMessage) -> None:
        if form is None:
            return
        delivery = self._deliveries.get(form)
        if delivery is None:
            delivery = self._deliveries[form] = self._make_delivery(form)
        delivery.deliver(message)

    def _message_form(self, changed: RecordChange) -> RecordMessageForm | None:
        """Return the form of a message about a group; None for no message."""
        if changed.record is None:
            return RecordMessageForm.OOF if self._subscription.tracks_focus else None
        if (
            changed.previous is None
            or not self._subscription.sends_deltas
            or not self._delta_encoder.is_supported
        ):
            return RecordMessageForm.FULL
        return RecordMessageForm.DELTA
