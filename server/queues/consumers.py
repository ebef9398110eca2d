"""Who consumes: subscriptions with their backlogs, and their seats at queues.

A consumer is one subscription. It has one backlog, however many queues its topic matches, and a
seat at each of them. A seat has what its consumer holds there.

Source: AMPS User Guide, Subscription Backlog; Replacing Queue Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias


class Consumer:
    """One subscription to one or more queues.

    Args:
        name: of its client, as it is recorded and shown.
        client: stands for the connection: strict leasing compares it.
        requested: the `max_backlog` of the subscription; 1 if it says none, 0 pauses it.

    Attributes:
        limit: its backlog: the least of what it asked for and what the queues allow.
        is_held_back: whether it gets no messages for now, because it does not read them.
        allowance: how many messages it may have for now: none while it is held back.
        outstanding: messages that it has and has not acknowledged.
        subscription: what it stands for now, for whoever integrates this.
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
        self.seats: list[Seat] = []

    def request(self, backlog: int) -> None:
        """Ask for another backlog; what is held stays held."""
        self.requested = backlog
        self.limits_changed()

    def limits_changed(self) -> None:
        """Work out the limit anew, and have all queues look again."""
        allowed = [seat.allowed for seat in self.seats if seat.is_supplied]
        self.limit = min([self.requested, *allowed])
        self.allowance = 0 if self.is_held_back else self.limit
        self.changed()

    def hold_back(self, is_held_back: bool) -> None:
        """Have it get no messages for now, or get them again; what is held stays held."""
        self.is_held_back = is_held_back
        self.limits_changed()

    def changed(self) -> None:
        """Have all queues look again whether there is room."""
        for seat in tuple(self.seats):
            seat.look_again(seat)


Entry: TypeAlias = "tuple[float, int, Seat]"
"""The key of a seat's turn, its order, and the seat. No two seats have the same order."""


class Seat:
    """What a consumer has to do with one queue.

    Attributes:
        consumer: whose it is.
        allowed: the queue's MaxPerSubscriptionBacklog.
        look_again: tells the queue that the room of the consumer may have changed.
        order: seats are counted as they are taken.
        entry: where it stands among those who wait for a turn; None if it has no room.
        content_filter: which messages it wants, None for all.
        is_supplied: whether it gets messages, and does not merely hold some.
        held: the places of messages that it has and has not acknowledged.
        returning: those that come back since it is about to go, if they do so by and by.
        served: when it had its last message, in turns of the queue.
        delivered: messages that it has had.
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
        self, consumer: Consumer, allowed: int, order: int, look_again: Callable[[Seat], None]
    ) -> None:
        self.consumer = consumer
        self.allowed = allowed
        self.order = order
        self.look_again = look_again
        self.entry: Entry | None = None
        self.content_filter: Hashable | None = None
        self.is_supplied = False
        self.held: set[int] = set()
        self.returning: list[int] = []
        self.served = 0
        self.delivered = 0

    @property
    def room(self) -> int:
        """How many messages it can take."""
        return self.consumer.allowance - self.consumer.outstanding
