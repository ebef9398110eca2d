"""The subscriptions of one topic: who they are, and which filters they have.

What a topic does with its audience differs: an ad hoc topic hands on what is published to it
(server/topics/topic.py), a topic with records says what became of a record
(server/subscriptions/record_audience.py). Both keep deliveries prepared as long as the audience
stays the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.subscriptions.matching import Filter, FilterSet
from server.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType


class Audience:
    """The subscriptions of one topic of one message type.

    Args:
        message_type: the type that the topic is scoped to.
        name: the topic's name.
        functions: what filters may call.
    """

    __slots__ = ("_filters", "_subscriptions", "message_type", "name")

    def __init__(self, message_type: MessageType, name: str, functions: Functions) -> None:
        self.message_type = message_type
        self.name = name
        self._subscriptions: dict[Subscription, Filter | None] = {}
        self._filters = FilterSet(message_type, functions)

    @property
    def has_subscriptions(self) -> bool:
        """Whether a message could go to anybody."""
        return bool(self._subscriptions)

    @property
    def has_literal_subscription(self) -> bool:
        """Whether somebody subscribed to this very topic, and not to a pattern that it matches."""
        return any(not subscription.selector.is_regex for subscription in self._subscriptions)

    def attach(self, subscription: Subscription) -> None:
        """Deliver messages to a subscription from now on."""
        expr = subscription.filter
        self._subscriptions[subscription] = None if expr is None else self._filters.add(expr)
        self._changed()

    def detach(self, subscription: Subscription) -> None:
        """Deliver no more messages to a subscription, if it is attached."""
        if subscription not in self._subscriptions:
            return
        filter_ = self._subscriptions.pop(subscription)
        if filter_ is not None:
            self._filters.remove(filter_)
        self._changed()

    def _changed(self) -> None:
        """Drop what has been prepared for the subscriptions that there were."""
        raise NotImplementedError

    def _by_connection(self) -> tuple[list[Subscription], list[Subscription]]:
        """The subscriptions of connections without any filter here, and those of all others."""
        filtering = {
            subscription.session.number
            for subscription, filter_ in self._subscriptions.items()
            if filter_ is not None
        }
        unfiltered: list[Subscription] = []
        filtered: list[Subscription] = []
        for subscription in self._subscriptions:
            filters = subscription.session.number in filtering
            (filtered if filters else unfiltered).append(subscription)
        return unfiltered, filtered
