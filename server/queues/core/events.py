"""The recorded events of a queue, beside the messages themselves.

A queue's state is a fold over the log: the messages that entered it, and these events, in log
order. State that follows from the clock or ends with the process (leases, backlogs, the rotation of
consumers) is not recorded: after a restart every message that has not left the queue is in it
again, unleased.

    Acked        done: acknowledged by bookmark, key or filter
    Deferred     acknowledged before the message arrived; done on arrival
    Expired      done: removed by time, by too many attempts, or on request
    Cancelled    returned; its number of cancels, and when it may be delivered again
    Leased       delivered; recorded where that is counted for MaxDeliveries or dead letters
    Sent         done: sent under at-most-once; recorded before it is sent
    Released     done: a barrier that has been released
    Transferred  another instance owns the message from now on

Instances that share a queue also receive each other's events: `DomainQueueEvent` names the queue of
an event, where several queues may have the same name.

`encode` makes the body of a journal entry from an event, `decode` reads it back.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

PublisherSequence: TypeAlias = tuple[int, int]
"""A bookmark as numbers: the publisher's client hash, and the sequence number."""

TIME_LIMIT = "time_limit"
FORCED_EXPIRE = "forced_expire"
MAX_CANCELS = "max_cancels"
MAX_DELIVERIES = "max_deliveries"


class _Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event that concerns messages of a queue.

    The journal holds only the values of fields, but server/cli/journal_text.py prints their names.

    Attributes:
        at: its time, in microseconds since 1970.
        bookmarks: the messages concerned.
    """

    at: int
    bookmarks: list[PublisherSequence]


class Acked(_Event, tag=1, frozen=True, gc=False, array_like=True):
    """Messages were acknowledged, and have left the queue."""


class Deferred(_Event, tag=2, frozen=True, gc=False, array_like=True):
    """Messages were acknowledged that the queue does not have yet."""


class RemovalDetails(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of one expired message: the data of a dead letter.

    Attributes:
        txid: its txid in this instance's log.
        reasons: `time_limit`, `forced_expire`, `max_cancels`, `max_deliveries`.
        deliveries: number of deliveries: the total where deliveries are recorded, otherwise since
            the start of the instance.
        cancels: number of cancels.
        last_consumer: the name of the last consumer that had it, empty if none had it.
    """

    txid: int
    reasons: tuple[str, ...]
    deliveries: int = 0
    cancels: int = 0
    last_consumer: str = ""


class Expired(_Event, tag=3, frozen=True, gc=False, array_like=True):
    """Messages were removed without an acknowledgement.

    Attributes:
        departures: the details, for each bookmark.
        has_letters: whether a dead letter is published for each of them, after this.
    """

    departures: list[RemovalDetails]
    has_letters: bool = False


class Cancelled(_Event, tag=4, frozen=True, gc=False, array_like=True):
    """Messages were returned, and stay in the queue.

    Attributes:
        counts: for each bookmark, its number of cancels.
        retry_at: when they may be delivered again; no later than `at` for at once.
    """

    counts: list[int]
    retry_at: list[int]


class Leased(_Event, tag=5, frozen=True, gc=False, array_like=True):
    """Messages were delivered.

    Attributes:
        consumer: the name of the consumer.
    """

    consumer: str


class Sent(_Event, tag=6, frozen=True, gc=False, array_like=True):
    """Messages were sent under at-most-once, and have left the queue."""


class Released(_Event, tag=7, frozen=True, gc=False, array_like=True):
    """Barriers were released, and have left the queue."""


class Transferred(_Event, tag=8, frozen=True, gc=False, array_like=True):
    """Messages have another owner.

    Attributes:
        owner: the name of the instance.
        transfer_counts: for each bookmark, the number of its transfers; see ownership.py.
    """

    owner: str
    transfer_counts: list[int]


QueueEvent: TypeAlias = (
    Acked | Deferred | Expired | Cancelled | Leased | Sent | Released | Transferred
)


def shifted(event: QueueEvent, microseconds: int) -> QueueEvent:
    """Return an event with its timestamps shifted, to convert them to another clock."""
    if not microseconds:
        return event
    at = event.at + microseconds
    if isinstance(event, Cancelled):
        retry_at = [time + microseconds for time in event.retry_at]
        return msgspec.structs.replace(event, at=at, retry_at=retry_at)
    return msgspec.structs.replace(event, at=at)


def with_delays_from(event: Cancelled, now: int) -> Cancelled:
    """Return an event with its delays limited to their full length from now on."""
    return cast("Cancelled", shifted(event, min(now - event.at, 0)))


class DomainQueueEvent(msgspec.Struct, tag=9, frozen=True, gc=False, array_like=True):
    """An event with the queue that it belongs to, among several queues of one name.

    Attributes:
        domain: distinguishes queues of that name on the instances; empty if there is only one.
        event: the event.
    """

    domain: str
    event: QueueEvent


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[QueueEvent | DomainQueueEvent] = msgspec.msgpack.Decoder(
    QueueEvent | DomainQueueEvent
)


def encode(event: QueueEvent, domain: str = "") -> bytes:
    """Encode an event as the body of a journal entry.

    Args:
        event: the event.
        domain: see `DomainQueueEvent`.
    """
    return _ENCODER.encode(DomainQueueEvent(domain, event) if domain else event)


def decode(body: bytes) -> QueueEvent:
    """Decode an event from the body of a journal entry.

    Raises:
        msgspec.MsgspecError: the body is not an event.
    """
    return decode_with_domain(body).event


def decode_with_domain(body: bytes) -> DomainQueueEvent:
    """Decode an event and its queue from the body of a journal entry.

    Raises:
        msgspec.MsgspecError: the body is not an event.
    """
    decoded = _DECODER.decode(body)
    return decoded if isinstance(decoded, DomainQueueEvent) else DomainQueueEvent("", decoded)
