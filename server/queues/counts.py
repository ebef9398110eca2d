"""What is counted: attempts with one message, and what happens to all."""

from __future__ import annotations

from dataclasses import dataclass


class Attempts:
    """What has been tried with a message that was delivered in vain.

    Attributes:
        deliveries: how often it was delivered, a lease of now not included.
        cancels: how often it was cancelled.
        last_consumer: who had it last.
        last_leased: when they got it, in microseconds since 1970.
    """

    __slots__ = ("cancels", "deliveries", "last_consumer", "last_leased")

    def __init__(self) -> None:
        self.deliveries = 0
        self.cancels = 0
        self.last_consumer = ""
        self.last_leased = 0


@dataclass(slots=True)
class Counters:
    """What has happened since the instance started, its recovery included.

    Attributes:
        enqueued: messages that entered the queue.
        delivered: deliveries, barriers not included.
        acknowledged: messages that were acknowledged.
        expired: messages that were removed without that.
        cancelled: cancels that gave a message back.
        expired_leases: leases on messages that ended by time.
        returned: leases on messages that ended because the consumer went away.
        transferred_in: messages that this instance has come to own.
        transferred_out: messages that it owns no more.
        owned_twice: messages that were published at another instance, too, which owns them now:
            both may have delivered them.
        ended_elsewhere: messages that consumers here had when another instance ended them: what
            came twice.
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
