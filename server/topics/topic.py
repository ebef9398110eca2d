"""An ad hoc topic: what is published to it goes to whoever is subscribed, and nowhere else.

Deliveries are prepared. Connections whose subscriptions have no filter get every message, so their
deliveries are known as long as subscriptions do not change. The others depend on the set of filters
that a message matches; the deliveries for each such set are kept from one message to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from server.expressions.context import NO_CONTEXT
from server.subscriptions.conflation import ConflatedDelivery
from server.subscriptions.delivery import (
    Delivery,
    DirectDelivery,
    SinkDelivery,
    TracedDelivery,
    WatchedDelivery,
)
from server.subscriptions.envelope import Envelope
from server.subscriptions.matching import Filter, FilterSet
from server.subscriptions.presentation import Presentation
from server.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType

_MOST_MATCHES_KEPT: Final = 16_384


class Topic:
    """One topic of one message type.

    Args:
        message_type: the type that it is scoped to.
        name: its name.
        functions: what filters may call.
    """

    __slots__ = (
        "_filtered",
        "_filters",
        "_subscriptions",
        "_to_all",
        "_to_matching",
        "message_type",
        "name",
    )

    def __init__(self, message_type: MessageType, name: str, functions: Functions) -> None:
        self.message_type = message_type
        self.name = name
        self._subscriptions: dict[Subscription, Filter | None] = {}
        self._filters = FilterSet(message_type, functions)
        self._to_all: list[Delivery] | None = []  # None when subscriptions have changed
        self._to_matching: dict[tuple[Filter, ...], list[Delivery]] = {}
        self._filtered: list[Subscription] = []  # of connections that have any filter here

    @property
    def has_literal_subscription(self) -> bool:
        """Whether somebody subscribed to this very topic, and not to a pattern that it matches."""
        return any(not subscription.selector.is_regex for subscription in self._subscriptions)

    def attach(self, subscription: Subscription) -> None:
        """Deliver messages to a subscription from now on."""
        expr = subscription.filter
        self._subscriptions[subscription] = None if expr is None else self._filters.add(expr)
        self._to_all = None

    def detach(self, subscription: Subscription) -> None:
        """Deliver no more messages to a subscription, if it is attached."""
        if subscription not in self._subscriptions:
            return
        filter_ = self._subscriptions.pop(subscription)
        if filter_ is not None:
            self._filters.remove(filter_)
        self._to_all = None

    @property
    def has_subscriptions(self) -> bool:
        """Whether a message could go to anybody."""
        return bool(self._subscriptions)

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Deliver messages to every subscription that they match.

        Args:
            bodies: the bodies of one or more messages, in order.
            envelope: what they have in common.
        """
        to_all = self._to_all
        if to_all is None:
            to_all = self._prepare()
        for delivery in to_all:
            delivery.deliver(bodies, envelope)
        if self._filters:
            self._publish_filtered(bodies, envelope)

    def _publish_filtered(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        match, known = self._filters.match, self._to_matching
        needs_context = self._filters.asks_for_context
        context = NO_CONTEXT
        for body in bodies:
            if needs_context:
                context = envelope.context(self.name, body)
            matched = match(body, context)
            deliveries = known.get(matched)
            if deliveries is None:
                deliveries = self._prepare_for(matched)
            for delivery in deliveries:
                delivery.deliver((body,), envelope)

    def _prepare(self) -> list[Delivery]:
        filtering = {
            subscription.session.number
            for subscription, filter_ in self._subscriptions.items()
            if filter_ is not None
        }
        self._filtered = [one for one in self._subscriptions if one.session.number in filtering]
        self._to_matching.clear()
        self._to_all = self._deliveries(
            one for one in self._subscriptions if one.session.number not in filtering
        )
        return self._to_all

    def _prepare_for(self, matched: tuple[Filter, ...]) -> list[Delivery]:
        if len(self._to_matching) >= _MOST_MATCHES_KEPT:
            self._to_matching.clear()
        wanted = {None, *matched}
        deliveries = self._to_matching[matched] = self._deliveries(
            one for one in self._filtered if self._subscriptions[one] in wanted
        )
        return deliveries

    def _deliveries(self, subscriptions: Iterable[Subscription]) -> list[Delivery]:
        """Group subscriptions that can share a delivery: equal in connection and presentation."""
        apart: list[Delivery] = []
        groups: dict[tuple[int, Presentation], list[Subscription]] = {}
        for subscription in subscriptions:
            if subscription.conflater is not None:
                delivery = self._delivery_for([subscription])
                apart.append(ConflatedDelivery(subscription.conflater, self.name, delivery))
            elif subscription.sink is not None:
                apart.append(self._delivery_for([subscription]))
            else:
                key = subscription.session.number, subscription.presentation
                groups.setdefault(key, []).append(subscription)
        return [self._delivery_for(group) for group in groups.values()] + apart

    def _delivery_for(self, group: Sequence[Subscription]) -> Delivery:
        first, session = group[0], group[0].session
        if first.sink is not None:
            return SinkDelivery(first.sink, self.name, first.presentation)
        sub_ids = [subscription.sub_id for subscription in group]
        delivery: Delivery = DirectDelivery(session.outbox, self.name, sub_ids, first.presentation)
        if watchers := session.engine.hooks.delivery_watchers(self.message_type.name, self.name):
            delivery = WatchedDelivery(delivery, watchers, session, self.name)
        if not session.engine.log.enabled("17-0001"):
            return delivery
        emit, client = session.engine.log.emit, session.client_name
        header = f"{{topic {self.name}}}"
        return TracedDelivery(
            delivery,
            lambda body: emit(
                "17-0001", client=client, command="publish", header=header, body=body
            ),
        )
