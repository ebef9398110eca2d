"""Consumers: subscriptions with their backlogs, and their slots at queues.

A consumer is one subscription. It has one backlog, however many queues its topic matches, and a
slot at each of them. A slot has the messages that its consumer holds there.

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
        requested_backlog: the `max_backlog` of the subscription; 1 by default, 0 pauses it.
        is_paused: see the attribute.

    Attributes:
        max_backlog: its backlog: the least of the requested one and the limits of its queues.
        is_held_back: whether it gets no messages for now, because it does not read them.
        is_paused: whether it gets no messages for now, because the instance is being drained.
        effective_backlog: the backlog in effect: `max_backlog`, or 0 while it is held back or
            paused.
        outstanding: number of messages that it has not acknowledged.
        subscription: the subscription that it represents now, for the integration.
        slots: one for each queue from which it gets messages, or still holds some.
    """

    __slots__ = (
        "client",
        "effective_backlog",
        "is_held_back",
        "is_paused",
        "max_backlog",
        "name",
        "outstanding",
        "requested_backlog",
        "slots",
        "subscription",
    )

    def __init__(
        self, name: str, client: Hashable, requested_backlog: int = 1, *, is_paused: bool = False
    ) -> None:
        self.name = name
        self.client = client
        self.requested_backlog = requested_backlog
        self.max_backlog = requested_backlog
        self.effective_backlog = 0 if is_paused else requested_backlog
        self.is_held_back = False
        self.is_paused = is_paused
        self.outstanding = 0
        self.subscription: object = None
        self.slots: list[ConsumerSlot] = []

    def set_requested_backlog(self, backlog: int) -> None:
        """Set the requested backlog; messages that it holds stay leased."""
        self.requested_backlog = backlog
        self.update_limit()

    def update_limit(self) -> None:
        """Recompute the limit, and notify all queues."""
        allowed = [slot.max_backlog for slot in self.slots if slot.is_active]
        self.max_backlog = min([self.requested_backlog, *allowed])
        self.effective_backlog = 0 if self.is_held_back or self.is_paused else self.max_backlog
        self.notify_queues()

    def set_held_back(self, is_held_back: bool) -> None:
        """Pause or resume deliveries; messages that it holds stay leased."""
        self.is_held_back = is_held_back
        self.update_limit()

    def set_paused(self, is_paused: bool) -> None:
        """Pause or resume deliveries for a drain; messages that it holds stay leased."""
        self.is_paused = is_paused
        self.update_limit()

    def notify_queues(self) -> None:
        """Notify all queues that its room may have changed."""
        for slot in tuple(self.slots):
            slot.on_room_change(slot)


RotationEntry: TypeAlias = "tuple[float, int, ConsumerSlot]"
"""A slot's key in the fairness model, its order, and the slot. Orders of slots are unique."""


class ConsumerSlot:
    """The state of a consumer in one queue.

    Attributes:
        consumer: the consumer.
        max_backlog: the queue's MaxPerSubscriptionBacklog.
        on_room_change: called when the consumer's room may have changed; notifies the queue.
        serial: its serial number, in order of creation.
        rotation_entry: its current entry in the heap of consumers with room (`ConsumerRotation`);
            None without room.
        content_filter: the filter of its messages, None for all messages.
        is_active: whether it gets messages; if not, it only holds some.
        held_offsets: the offsets of messages that it has not acknowledged.
        offsets_to_return: offsets still to return to the queue before it is detached, if
            that is done in batches.
        last_delivery_number: the number of messages that the queue had delivered when it got its
            last one.
        delivered_count: number of messages delivered to it.
    """

    __slots__ = (
        "consumer",
        "content_filter",
        "delivered_count",
        "held_offsets",
        "is_active",
        "last_delivery_number",
        "max_backlog",
        "offsets_to_return",
        "on_room_change",
        "rotation_entry",
        "serial",
    )

    def __init__(
        self,
        consumer: Consumer,
        max_backlog: int,
        serial: int,
        on_room_change: Callable[[ConsumerSlot], None],
    ) -> None:
        self.consumer = consumer
        self.max_backlog = max_backlog
        self.serial = serial
        self.on_room_change = on_room_change
        self.rotation_entry: RotationEntry | None = None
        self.content_filter: Hashable | None = None
        self.is_active = False
        self.held_offsets: set[int] = set()
        self.offsets_to_return: list[int] = []
        self.last_delivery_number = 0
        self.delivered_count = 0

    @property
    def free_backlog(self) -> int:
        """Number of messages that it can take."""
        return self.consumer.effective_backlog - self.consumer.outstanding
