"""An ad hoc topic: what is published to it goes to whoever is subscribed, and nowhere else.

Deliveries are prepared. Connections whose subscriptions have no filter get every message, so their
deliveries are known as long as subscriptions do not change. The others depend on the set of filters
that a message matches; the deliveries for each such set are kept from one message to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from server.expressions.context import NO_CONTEXT
from server.subscriptions.audience import Audience
from server.subscriptions.conflation import ConflatedDelivery
from server.subscriptions.delivery import Delivery, DirectDelivery
from server.subscriptions.envelope import Envelope
from server.subscriptions.matching import Filter
from server.subscriptions.presentation import Presentation
from server.subscriptions.rejection import Rejection
from server.subscriptions.sink import SinkDelivery, WatchedDelivery
from server.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.subscriptions.outbox import Outbox

_MOST_MATCHES_KEPT: Final = 16_384

FOR_NOBODY: Final = "/AMPS/devnull"
"""The topic that takes what is published to it, and that nobody hears of."""


class Topic(Audience):
    """One topic of one message type; it is nothing but its audience.

    Args:
        message_type: the type that it is scoped to.
        name: its name.
        functions: what filters may call.
    """

    __slots__ = ("_filtered", "_to_all", "_to_matching")

    keeps_messages = False
    """Whether messages go on stable storage."""
    is_journaled = False
    """Whether messages are in the transaction log."""

    def __init__(self, message_type: MessageType, name: str, functions: Functions) -> None:
        super().__init__(message_type, name, functions)
        self._to_all: list[Delivery] | None = []  # None when subscriptions have changed
        self._to_matching: dict[tuple[Filter, ...], list[Delivery]] = {}
        self._filtered: list[Subscription] = []  # of connections that have any filter here

    def _changed(self) -> None:
        self._to_all = None

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Deliver messages to every subscription that they match.

        Args:
            bodies: the bodies of one or more messages, in order.
            envelope: what they have in common.

        Returns:
            What was not published; here that is nothing.
        """
        to_all = self._to_all
        if to_all is None:
            to_all = self._prepare()
        for delivery in to_all:
            delivery.deliver(bodies, envelope)
        if self._filters:
            self._publish_filtered(bodies, envelope)
        return ()

    def deliveries(self, body: bytes, envelope: Envelope) -> Sequence[Delivery]:
        """The deliveries that a message is for, as `publish` makes them."""
        to_all = self._to_all
        if to_all is None:
            to_all = self._prepare()
        if not self._filters:
            return to_all
        context = NO_CONTEXT
        if self._filters.asks_for_context:
            context = envelope.context(self.name, body)
        return to_all + self._deliveries_to(self._filters.match(body, context))

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call back at once: there is nothing to be stored."""
        then()

    def _publish_filtered(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        match = self._filters.match
        needs_context = self._filters.asks_for_context
        context = NO_CONTEXT
        for body in bodies:
            if needs_context:
                context = envelope.context(self.name, body)
            for delivery in self._deliveries_to(match(body, context)):
                delivery.deliver((body,), envelope)

    def _deliveries_to(self, matched: tuple[Filter, ...]) -> list[Delivery]:
        deliveries = self._to_matching.get(matched)
        return self._prepare_for(matched) if deliveries is None else deliveries

    def _prepare(self) -> list[Delivery]:
        unfiltered, self._filtered = self._by_connection()
        self._to_matching.clear()
        self._to_all = self._deliveries(unfiltered)
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
        conflated: list[Delivery] = []
        groups: dict[tuple[Outbox, Presentation], list[Subscription]] = {}
        for subscription in subscriptions:
            if subscription.conflater is not None:
                delivery = self._delivery_for([subscription])
                conflated.append(ConflatedDelivery(subscription.conflater, self.name, delivery))
            else:
                key = subscription.outbox, subscription.presentation
                groups.setdefault(key, []).append(subscription)
        return [self._delivery_for(group) for group in groups.values()] + conflated

    def _delivery_for(self, group: Sequence[Subscription]) -> Delivery:
        first, session = group[0], group[0].session
        if first.sink is not None:
            return SinkDelivery(first.sink, self.name, first.presentation)
        sub_ids = [subscription.sub_id for subscription in group]
        delivery: Delivery = DirectDelivery(first.outbox, self.name, sub_ids, first.presentation)
        if watchers := session.engine.hooks.delivery_watchers(self.message_type.name, self.name):
            delivery = WatchedDelivery(delivery, watchers, session, self.name)
        return delivery


class TopicForNobody(Topic):
    """The topic `FOR_NOBODY`: its subscribers hear nothing, and nothing is recorded."""

    __slots__ = ()

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:  # noqa: ARG002 - nobody hears of them
        """Let messages go."""
        return ()
