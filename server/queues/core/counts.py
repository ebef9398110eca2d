"""Counters: attempts to deliver one message, and the events of a queue."""

from __future__ import annotations

from dataclasses import dataclass


class DeliveryAttempts:
    """The unsuccessful deliveries of one message.

    Attributes:
        deliveries: number of deliveries, a current lease not included.
        cancels: number of cancels.
        last_consumer: the name of the last consumer that had it.
        last_leased: the time of that delivery, in microseconds since 1970.
    """

    def __init__(self) -> None:
        self.deliveries = 0
        self.cancels = 0
        self.last_consumer = ""
        self.last_leased = 0

    def add_delivery(self, consumer: str, leased_at: int) -> None:
        """Count a delivery to a consumer, given its name and the time in microseconds."""
        self.deliveries += 1
        self.last_consumer = consumer
        self.last_leased = leased_at


@dataclass(slots=True)
class QueueCounters:
    """Totals since the start of the instance, its recovery included.

    Attributes:
        enqueued: messages that entered the queue.
        delivered: deliveries, barriers not included.
        acknowledged: messages that were acknowledged.
        expired: messages that were removed without an acknowledgement.
        cancelled: cancels that returned a message to the queue.
        expired_leases: messages with leases that timed out.
        returned: messages with leases that ended because the consumer disconnected.
        transferred_in: messages that this instance has become the owner of.
        transferred_out: messages that this instance does not own any more.
        owned_twice: messages that were also published at another instance, which owns them now;
            both may have delivered them.
        ended_elsewhere: messages that another instance ended while consumers here had them:
            duplicate deliveries.
    """

    enqueued: int = 0
    delivered: int = 0
    acknowledged: int = 0
    expired: int = 0
    cancelled: int = 0
    expired_leases: int = 0
    returned: int = 0
    transferred_in: int = 0
    transferred_out: int = 0
    owned_twice: int = 0
    ended_elsewhere: int = 0
