"""An ad hoc topic: what is published to it goes to whoever is subscribed, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from server.subscriptions.delivery import Delivery, TracedDelivery
from server.subscriptions.subscription import Subscription


class Topic:
    """One topic of one message type.

    Attributes:
        name: its name.
        message_type: the name of the message type that it is scoped to.
    """

    __slots__ = ("_deliveries", "_subscriptions", "message_type", "name")

    def __init__(self, message_type: str, name: str) -> None:
        self.message_type = message_type
        self.name = name
        self._subscriptions: list[Subscription] = []
        self._deliveries: (
            list[Delivery | TracedDelivery] | None
        ) = []  # None when subscriptions have changed

    @property
    def has_literal_subscription(self) -> bool:
        """Whether somebody subscribed to this very topic, and not to a pattern that it matches."""
        return any(not subscription.selector.is_regex for subscription in self._subscriptions)

    def attach(self, subscription: Subscription) -> None:
        """Deliver messages to a subscription from now on."""
        self._subscriptions.append(subscription)
        self._deliveries = None

    def detach(self, subscription: Subscription) -> None:
        """Deliver no more messages to a subscription, if it is attached."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._deliveries = None

    def publish(self, bodies: Sequence[bytes], extra: bytes = b"") -> None:
        """Deliver messages to every subscription.

        Args:
            bodies: the bodies of one or more messages, in order.
            extra: header keys that all of them carry, as JSON text, each with its leading comma.
        """
        deliveries = self._deliveries
        if deliveries is None:
            deliveries = self._deliveries = self._group_by_connection()
        for delivery in deliveries:
            delivery.deliver(bodies, extra)

    def _group_by_connection(self) -> list[Delivery | TracedDelivery]:
        by_session: dict[int, list[Subscription]] = {}
        for subscription in self._subscriptions:
            by_session.setdefault(subscription.session.number, []).append(subscription)
        return [self._delivery_for(group) for group in by_session.values()]

    def _delivery_for(self, group: list[Subscription]) -> Delivery | TracedDelivery:
        session = group[0].session
        delivery = Delivery(session.outbox, self.name, [one.sub_id for one in group])
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
