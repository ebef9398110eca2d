"""The subscriptions of a topic with records, and the deliveries that a change of a record causes.

Theory of operation. The message that a subscription gets depends on whether it matched the record's
state before the change and whether it matches the state after it:

    before  after
      no     yes     the record (to a delta subscription that tracks focus: whole)
      yes    yes     the record, or to a delta subscription the difference
      yes    no      `oof`, if the subscription tracks focus; without the record if its user is not
                     entitled to it any more (server/topics/subscriptions/entitlement_limits.py)
      no     no      nothing

So the deliveries of a change depend only on the filters that match before and after, and on whether
the record existed before and exists after. The deliveries of such a combination are prepared when
it first occurs. The state before is matched only if some subscription tracks focus. Connections
without any filter on the topic get every change; their deliveries are prepared separately, because
the others have one set per combination.

A delta reveals the state before. So a record that the user is entitled to now, but was not before
the change, is sent whole (`EntitlementVisibility`). A state that only the client's own filter
rejected is not secret: without `oof`, AMPS sends the delta.

Subscriptions of one connection share messages as on any topic; if one of them needs the whole
record, none gets a delta of it (AMPS User Guide, Multiple Subscriptions and Delta Subscribe).

A subscription without deltas, without conflation, and without focus tracking of a filter gets the
same message whatever the state before was. If all are of this kind, the state before is not
needed, and records that change together are announced together: their frames are made in one call.
Otherwise the states before are read together, and changes are announced one by one after all of
them have been made.

Paginated subscriptions get messages about other records as well
(server/topics/subscriptions/paging/pages.py), and aggregated ones get messages about groups of
records (server/topics/subscriptions/aggregate_subscription.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from server.topics.subscriptions.aggregate_subscription import AggregateSubscription
from server.topics.subscriptions.delivery.delivery_cache import DeliveryCache
from server.topics.subscriptions.delivery.delivery_hooks import WatchedFramer
from server.topics.subscriptions.delivery.delta import DeltaEncoder
from server.topics.subscriptions.delivery.presentation import Presentation
from server.topics.subscriptions.delivery.record_conflation import (
    ConflatedRecordDelivery,
    RecordMessageForm,
)
from server.topics.subscriptions.delivery.record_delivery import (
    DeltaDelivery,
    FullRecordDelivery,
    OofDelivery,
    OutboxRecordFramer,
    RecordDelivery,
    RecordFramer,
    RecordMessage,
    deliver_record_batch,
)
from server.topics.subscriptions.delivery.sink import ChangeSink, SinkFramer
from server.topics.subscriptions.entitlement_limits import EntitlementVisibility
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import match_record
from server.topics.subscriptions.paging.page import FindRecord, Page
from server.topics.subscriptions.paging.pages import TopicPages
from server.topics.subscriptions.subscriber_set import SubscriberSet
from server.topics.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.storage.sow.record_batch import SowRecordBatch
    from server.storage.sow.records import RecordChange
    from server.topics.subscriptions.delivery.conflation import Conflater
    from server.topics.subscriptions.delivery.delivery import FrameWriter
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.paging.result_set import ResultSet

_Recipient: TypeAlias = tuple[RecordDelivery, Sequence[Subscription]]


class RecordChangeKind(Enum):
    """The kind of a change of a record."""

    INSERT = "insert"
    UPDATE = "update"
    REMOVAL = "removal"


class _Case(NamedTuple):
    """A combination that determines the recipients of a change and their messages.

    Attributes:
        kind: the kind of change.
        filters_after: the filters that match the new state.
        filters_before: the filters that matched the old state.
    """

    kind: RecordChangeKind
    filters_after: tuple[Filter, ...]
    filters_before: tuple[Filter, ...]


class RecordFanout(SubscriberSet):
    """The subscriptions of one topic with records.

    Args:
        message_type: the type that the topic is scoped to.
        name: the topic's name.
        functions: the functions that filters may call.
        delta_encoder: makes deltas of the topic's records.
        find_record: finds the topic's records by SOW key.
    """

    def __init__(
        self,
        message_type: MessageType,
        name: str,
        functions: Functions,
        delta_encoder: DeltaEncoder,
        find_record: FindRecord,
    ) -> None:
        super().__init__(message_type, name, functions)
        self._delta_encoder = delta_encoder
        self._pages = TopicPages(message_type, functions, find_record, delta_encoder)
        self._aggregates: dict[Subscription, AggregateSubscription] = {}
        self._has_result_sets = False
        self._is_stale = False
        self._plain_framers: list[OutboxRecordFramer] | None = []  # see `plain_deliveries`
        self._tracking_count = 0  # subscriptions that track focus
        self._filtered_tracking_count = 0  # those of them with a filter
        self._comparing_count = 0  # subscriptions with messages that depend on the state before
        # unfiltered subscriptions, with their numbers: of connections without a filter here, others
        self._pure_unfiltered: dict[Subscription, int] = {}
        self._mixed_unfiltered: dict[Subscription, int] = {}
        self._delivery_cache = DeliveryCache[RecordChangeKind | _Case, _Recipient]()

    @property
    def has_subscriptions(self) -> bool:
        """See `SubscriberSet.has_subscriptions`."""
        return bool(self._subscriptions) or self._has_result_sets

    @property
    def has_result_sets(self) -> bool:
        """True if a subscription is to a page or to groups of the records."""
        return self._has_result_sets

    def result_set(self, subscription: Subscription) -> ResultSet | None:
        """Return the result set of a subscription's page; None if it has none."""
        pages, effective = self._pages, self._effective_form(subscription)
        return pages.page(effective).result_set if effective in pages else None

    @property
    def has_literal_subscription(self) -> bool:
        """See `SubscriberSet`; pages and groups are of exactly this topic."""
        return super().has_literal_subscription or self.has_result_sets

    def _attach(self, subscription: Subscription) -> None:
        """See `SubscriberSet.attach`."""
        if subscription.aggregation is not None:
            self._aggregates[subscription] = AggregateSubscription(
                subscription,
                subscription.aggregation,
                partial(self._single_delivery, subscription),
                self._predecessor_of(subscription),
            )
        elif subscription.page is None:
            super()._attach(subscription)
            self._update_counts(subscription, 1)
        else:
            self._pages.attach(subscription, subscription.page, self._single_delivery)
        self._has_result_sets = bool(self._pages or self._aggregates)

    def _detach(self, subscription: Subscription) -> None:
        """See `SubscriberSet.detach`."""
        if subscription in self._pages:
            self._pages.detach(subscription)
        elif subscription in self._aggregates:
            self._aggregates.pop(subscription).end()
        elif subscription in self._subscriptions:
            super()._detach(subscription)
            self._update_counts(subscription, -1)
        self._has_result_sets = bool(self._pages or self._aggregates)

    def _update_counts(self, subscription: Subscription, step: int) -> None:
        is_comparing = (
            subscription.sends_deltas
            or subscription.conflater is not None
            or isinstance(subscription.sink, ChangeSink)
        )
        if subscription.tracks_focus:
            self._tracking_count += step
            if subscription.content_filter is not None:
                self._filtered_tracking_count += step
                is_comparing = True
        if is_comparing:
            self._comparing_count += step

    @property
    def needs_changes(self) -> bool:
        """True if some subscription needs changes (`announce`), and not only new states."""
        return bool(
            self._comparing_count or self.needs_current_records or self._filters.needs_context
        )

    @property
    def needs_removals(self) -> bool:
        """True if some subscription gets notices of records that are deleted, or needs changes."""
        return bool(self._tracking_count or self.needs_changes)

    @property
    def needs_current_records(self) -> bool:
        """True if a change has to be announced before the next one: for pages and groups."""
        return self._has_result_sets

    def _predecessor_of(self, subscription: Subscription) -> AggregateSubscription | None:
        """Return the live aggregated subscription that `subscription` is about to replace."""
        for other, aggregate in self._aggregates.items():
            if (other.subscriber, other.sub_id) == (subscription.subscriber, subscription.sub_id):
                is_compatible = aggregate.is_live and other.permit == subscription.permit
                return aggregate if is_compatible else None
        return None

    def page(self, subscription: Subscription) -> Page | None:
        """Return the page of a subscription; None if it is not paginated."""
        effective = self._effective_form(subscription)
        if effective in self._aggregates:
            return self._aggregates[effective].page
        return self._pages.page(effective) if effective in self._pages else None

    def aggregate(self, subscription: Subscription) -> AggregateSubscription:
        """Return the aggregate of an aggregated subscription."""
        return self._aggregates[self._effective_form(subscription)]

    def cost_of(self, subscription: Subscription) -> FilterCost | None:
        """See `SubscriberSet.cost_of`. The cost of an aggregated subscription is not known."""
        effective = self._effective_form(subscription)
        if effective in self._pages:
            return self._pages.cost_of(effective, self.name)
        return super().cost_of(subscription)

    def _invalidate_deliveries(self) -> None:
        self._is_stale = True

    def announce(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """Deliver a change to subscribers.

        Args:
            change: the change of a record.
            envelope: the origin of the change.
            reason: the reason in `oof` messages.
        """
        if self._aggregates:
            self._update_aggregates(change, envelope, reason)
        recipients = self._recipients_of(change, envelope) if self._subscriptions else ()
        record, previous = change.record, change.previous
        state = record or previous
        if state is None or not (recipients or self._pages):
            return
        message = RecordMessage(
            change.key,
            state.body,
            None if previous is None else previous.body,
            envelope,
            self._delta_encoder,
            reason,
            state.correlation_id,
            state,
            previous,
        )
        for delivery, subscriptions in recipients:
            try:
                delivery.deliver(message)
            except Exception as error:  # no error of a subscription may fail the change
                end_failed_subscriptions(subscriptions, error)
        if self._pages:
            self._pages.apply_change(change, envelope, message)

    def announce_batch(self, batch: SowRecordBatch, envelope: Envelope) -> None:
        """Deliver records that have been put, provided that `needs_changes` is false.

        Args:
            batch: the records.
            envelope: their origin.
        """
        if self._is_stale:
            self._prepare()
        self._deliver_together(
            self._unfiltered_recipients(RecordChangeKind.UPDATE), batch, envelope
        )
        filters = self._filters
        if not filters:
            return
        filters.count_messages(len(batch.bodies))
        start = 0
        for after, matches in groupby(map(filters.match, batch.bodies)):
            end = start + sum(1 for _ in matches)
            if self._is_stale:  # a filter has failed
                self._prepare()
            recipients = self._matching_recipients(_Case(RecordChangeKind.UPDATE, after, ()))
            if recipients:
                self._deliver_together(recipients, batch.part(start, end), envelope)
            start = end

    def plain_deliveries(self) -> Sequence[OutboxRecordFramer] | None:
        """Return the deliveries of every record, if they frame verbatim or selected bodies.

        See `Topic.plain_deliveries`.
        """
        if self._is_stale:
            self._prepare()
        return None if self._filters or self.needs_changes else self._plain_framers

    def filtered_subscriptions(self) -> Sequence[Subscription] | None:
        """Return no subscriptions; None if there are filters. See `Topic`."""
        return None if self._filters else ()

    def _deliver_together(
        self, recipients: Sequence[_Recipient], batch: SowRecordBatch, envelope: Envelope
    ) -> None:
        """Deliver a batch; several deliveries of one connection are interleaved per record."""
        connections = {subscriptions[0].outbox for _, subscriptions in recipients}
        count = len(batch.bodies)
        step = count if len(connections) == len(recipients) else 1
        for start in range(0, count, step):
            part = batch.part(start, start + step)
            for delivery, subscriptions in recipients:
                try:
                    deliver_record_batch(delivery, part, envelope, self._delta_encoder)
                except Exception as error:  # no error of a subscription may fail the change
                    end_failed_subscriptions(subscriptions, error)

    def _update_aggregates(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        for subscription, aggregate in self._aggregates.items():
            try:
                aggregate.handle_change(change, envelope, reason)
            except Exception as error:  # no error of a subscription may fail the change
                end_failed_subscriptions((subscription,), error)

    def _recipients_of(self, change: RecordChange, envelope: Envelope) -> Sequence[_Recipient]:
        """Return the recipients of a change, of all subscriptions without a page."""
        if self._is_stale:
            self._prepare()
        if change.record is None:
            if change.previous is None or not self._tracking_count:
                return ()
            kind = RecordChangeKind.REMOVAL
        else:
            kind = RecordChangeKind.INSERT if change.previous is None else RecordChangeKind.UPDATE
        recipients = self._unfiltered_recipients(kind)
        if self._filters:
            return [*recipients, *self._filtered_recipients(kind, change, envelope)]
        return recipients

    def _unfiltered_recipients(self, kind: RecordChangeKind) -> Sequence[_Recipient]:
        """Return the recipients of any change, of the connections without a filter here."""
        recipients = self._delivery_cache.get(kind)
        if recipients is None:
            grouped = self._group_recipients(self._pure_unfiltered, kind, set(), set())
            recipients = self._delivery_cache.store(kind, grouped)
        return recipients

    def _prepare(self) -> None:
        self._is_stale = False
        self._pure_unfiltered, self._mixed_unfiltered = self._split_unfiltered()
        self._delivery_cache.clear()
        recipients = self._unfiltered_recipients(RecordChangeKind.UPDATE)
        plain = [
            delivery.framer
            for delivery, _ in recipients
            if isinstance(delivery, FullRecordDelivery)
            and isinstance(delivery.framer, OutboxRecordFramer)
            and delivery.framer.presentation.never_raises
        ]
        is_plain = len(plain) == len(recipients) == len({framer.outbox for framer in plain})
        self._plain_framers = plain if is_plain else None

    def _filtered_recipients(
        self, kind: RecordChangeKind, change: RecordChange, envelope: Envelope
    ) -> Sequence[_Recipient]:
        """Return the recipients of a change, of the connections with a filter here."""
        after: tuple[Filter, ...] = ()
        before: tuple[Filter, ...] = ()
        if change.record is not None:
            after = match_record(self._filters, change.record, envelope)
        if change.previous is not None and self._filtered_tracking_count:
            before = match_record(self._filters, change.previous, None)
        return self._matching_recipients(_Case(kind, after, before))

    def _matching_recipients(self, case: _Case) -> Sequence[_Recipient]:
        """Return the recipients of a combination, of the connections with a filter here."""
        recipients = self._delivery_cache.get(case)
        if recipients is None:
            kind, after, before = case
            subscriptions = self._merge_subscriptions(self._mixed_unfiltered, after + before)
            grouped = self._group_recipients(subscriptions, kind, set(after), set(before))
            recipients = self._delivery_cache.store(case, grouped)
        return recipients

    # ---- preparing

    def _group_recipients(
        self,
        subscriptions: Iterable[Subscription],
        kind: RecordChangeKind,
        after: set[Filter],
        before: set[Filter],
    ) -> list[_Recipient]:
        conflated: list[_Recipient] = []
        groups: dict[
            tuple[Outbox, Presentation, bool, str], list[tuple[Subscription, RecordMessageForm]]
        ] = {}
        for subscription in subscriptions:
            form = self._message_form(subscription, kind, after, before)
            if form is None:
                continue
            if subscription.conflater is not None:
                had_match = self._matched_before(subscription, kind, before)
                delivery = self._conflated_delivery(
                    subscription, subscription.conflater, form, had_match=had_match
                )
                conflated.append((delivery, [subscription]))
                continue
            is_oof = form is RecordMessageForm.OOF
            permitted = subscription.permit.filter_text
            group = subscription.outbox, subscription.presentation, is_oof, permitted
            groups.setdefault(group, []).append((subscription, form))
        return [
            (self._delivery_for(group), [subscription for subscription, _ in group])
            for group in groups.values()
        ] + conflated

    def _message_form(
        self,
        subscription: Subscription,
        kind: RecordChangeKind,
        after: set[Filter],
        before: set[Filter],
    ) -> RecordMessageForm | None:
        """Return the form that a subscription gets; None for nothing. See the table at the top."""
        filter_ = self._subscriptions[subscription]
        matched = self._matched_before(subscription, kind, before)
        if kind is RecordChangeKind.REMOVAL or not (filter_ is None or filter_ in after):
            return RecordMessageForm.OOF if matched and subscription.tracks_focus else None
        if (
            not subscription.sends_deltas
            or not self._delta_encoder.is_supported
            or kind is RecordChangeKind.INSERT
        ):
            return RecordMessageForm.FULL
        is_returning = subscription.tracks_focus and not matched
        return RecordMessageForm.FULL if is_returning else RecordMessageForm.DELTA

    def _matched_before(
        self, subscription: Subscription, kind: RecordChangeKind, before: set[Filter]
    ) -> bool:
        """Return True if a subscription matched a record before it changed."""
        filter_ = self._subscriptions[subscription]
        return kind is not RecordChangeKind.INSERT and (filter_ is None or filter_ in before)

    def _single_delivery(
        self, subscription: Subscription, form: RecordMessageForm
    ) -> RecordDelivery:
        """Return a delivery to a single subscription."""
        if subscription.conflater is not None:
            return self._conflated_delivery(
                subscription, subscription.conflater, form, had_match=False
            )
        return self._delivery_for([(subscription, form)])

    def _delivery_for(
        self, group: Sequence[tuple[Subscription, RecordMessageForm]]
    ) -> RecordDelivery:
        subscriptions = [subscription for subscription, _ in group]
        if any(form is not RecordMessageForm.DELTA for _, form in group):
            if group[0][1] is RecordMessageForm.OOF:
                visibility = self._visibility_for(subscriptions[0])
                return OofDelivery(self._make_framer("oof", subscriptions), visibility)
            return FullRecordDelivery(self._make_framer("p", subscriptions))
        with_empty_deltas = [
            subscription for subscription in subscriptions if not subscription.omits_empty_deltas
        ]
        return DeltaDelivery(
            self._make_framer("p", subscriptions),
            self._make_framer("p", with_empty_deltas) if with_empty_deltas else None,
            self._visibility_for(subscriptions[0]),
        )

    def _conflated_delivery(
        self,
        subscription: Subscription,
        conflater: Conflater,
        form: RecordMessageForm,
        *,
        had_match: bool,
    ) -> RecordDelivery:
        return ConflatedRecordDelivery(
            subscription,
            conflater,
            self.name,
            form,
            self._make_framer("p", [subscription]),
            self._make_framer("oof", [subscription]),
            self._visibility_for(subscription),
            had_match=had_match,
        )

    def _visibility_for(self, subscription: Subscription) -> EntitlementVisibility | None:
        """Return the entitlement limits of a subscription; None if its user may see all."""
        permitted = subscription.permit.filter
        if permitted is None or subscription.aggregation is not None:
            return None
        return EntitlementVisibility(permitted, self.message_type, self._functions)

    def _make_framer(self, command: str, subscriptions: Sequence[Subscription]) -> RecordFramer:
        subscriber, sink = subscriptions[0].subscriber, subscriptions[0].sink
        presentation = subscriptions[0].presentation
        if sink is not None:
            return SinkFramer(sink, self.name, presentation, is_oof=command == "oof")
        sub_ids = [subscription.sub_id for subscription in subscriptions]
        outbox = _writer_for(subscriptions[0])
        framer = OutboxRecordFramer(outbox, command, self.name, sub_ids, presentation)
        watchers = subscriber.delivery_watchers(self.name)
        if command == "oof" or not watchers:
            return framer
        return WatchedFramer(framer, watchers, subscriber, self.name)


def _writer_for(subscription: Subscription) -> FrameWriter:
    """Return the writer for a subscription's messages, which also counts them."""
    outbox = subscription.outbox
    if subscription.conflater or subscription.page or subscription.aggregation:
        return outbox.counting_writer(outbox.traffic.detached)
    return outbox
