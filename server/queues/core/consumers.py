"""Consumers: subscriptions with their backlogs, and their seats at queues.

A consumer is one subscription. It has one backlog, however many queues its topic matches, and a
seat at each of them. A seat has the messages that its consumer holds there.

Source: AMPS User Guide, Subscription Backlog; Replacing Queue Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias


class Consumer:
    """One subscription to one or more queues.

    Args:
        name: the name of its client, for the journal and for display.
        client: identifies the connection: strict leasing compares it.
        requested: the `max_backlog` of the subscription; 1 by default, 0 pauses it.

    Attributes:
        limit: its backlog: the least of the requested one and the limits of its queues.
        is_held_back: whether it gets no messages for now, because it does not read them.
        allowance: the backlog in effect: `limit`, or 0 while it is held back.
        outstanding: number of messages that it has not acknowledged.
        subscription: the subscription that it represents now, for the integration.
        seats: one for each queue that it takes messages from, or still holds messages of.
    """

    __slots__ = (
        "allowance",
        "client",
        "is_held_back",
        "limit",
        "name",
        "outstanding",
        "requested",
        "seats",
        "subscription",
    )

    def __init__(self, name: str, client: Hashable, requested: int = 1) -> None:
        self.name = name
        self.client = client
        self.requested = requested
        self.limit = requested
        self.allowance = requested
        self.is_held_back = False
        self.outstanding = 0
        self.subscription: object = None
        self.seats: list[ConsumerSlot] = []

    def request(self, backlog: int) -> None:
        """Set the requested backlog; messages that it holds stay leased."""
        self.requested = backlog
        self.limits_changed()

    def limits_changed(self) -> None:
        """Recompute the limit, and notify all queues."""
        allowed = [seat.allowed for seat in self.seats if seat.is_supplied]
        self.limit = min([self.requested, *allowed])
        self.allowance = 0 if self.is_held_back else self.limit
        self.changed()

    def hold_back(self, is_held_back: bool) -> None:
        """Pause or resume deliveries; messages that it holds stay leased."""
        self.is_held_back = is_held_back
        self.limits_changed()

    def changed(self) -> None:
        """Notify all queues that its room may have changed."""
        for seat in tuple(self.seats):
            seat.look_again(seat)


RotationEntry: TypeAlias = "tuple[float, int, ConsumerSlot]"
"""A seat's key in the fairness model, its order, and the seat. Orders of seats are unique."""


class ConsumerSlot:
    """The state of a consumer in one queue.

    Attributes:
        consumer: the consumer.
        allowed: the queue's MaxPerSubscriptionBacklog.
        look_again: callback that tells the queue that the consumer's room may have changed.
        order: its serial number, in order of creation.
        entry: its current entry in the heap of consumers with room (`ConsumerRotation`); None
            without room.
        content_filter: the filter of the messages that it wants, None for all messages.
        is_supplied: whether it gets messages; if not, it only holds some.
        held: the places of messages that it has not acknowledged.
        returning: places still to return to the queue before it is detached, if that is done in
            batches.
        served: the time of its last message, in turns of the queue.
        delivered: number of messages delivered to it.
    """

    __slots__ = (
        "allowed",
        "consumer",
        "content_filter",
        "delivered",
        "entry",
        "held",
        "is_supplied",
        "look_again",
        "order",
        "returning",
        "served",
    )

    def __init__(
        self,
        consumer: Consumer,
        allowed: int,
        order: int,
        look_again: Callable[[ConsumerSlot], None],
    ) -> None:
        self.consumer = consumer
        self.allowed = allowed
        self.order = order
        self.look_again = look_again
        self.entry: RotationEntry | None = None
        self.content_filter: Hashable | None = None
        self.is_supplied = False
        self.held: set[int] = set()
        self.returning: list[int] = []
        self.served = 0
        self.delivered = 0

    @property
    def room(self) -> int:
        """Number of messages that it can take."""
        return self.consumer.allowance - self.consumer.outstanding
