"""What a queue's record says beside the messages themselves.

A queue's state is the fold of what happened to it, in the order of the log: the messages that
entered it, and these events. What can be told from the clock or ends with the process (leases,
backlogs, whose turn it is) is no event: after a restart every message that has not left the queue
is there again, unleased.

    Acked        done: acknowledged by bookmark, key or filter
    Deferred     acknowledged before the message came; done when it comes
    Expired      done: removed by time, by too many attempts, or because somebody said so
    Cancelled    given back; how often that has happened, and when it may be delivered again
    Leased       delivered; recorded where that is counted for MaxDeliveries or dead letters
    Sent         done: sent under at-most-once; recorded before it is sent
    Released     done: a barrier that has been passed
    Transferred  another instance owns the message from now on

Instances that share a queue have each other's events, too: `Within` says which queue one is of,
where there may be several of a name.

`encode` makes the body of a journal entry of it, `decode` reads that back.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

Mark: TypeAlias = tuple[int, int]
"""A bookmark as numbers: the publisher's client hash, and its sequence number."""

TIME_LIMIT = "time_limit"
FORCED_EXPIRE = "forced_expire"
MAX_CANCELS = "max_cancels"
MAX_DELIVERIES = "max_deliveries"


class _Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that happened to messages of a queue.

    Attributes:
        at: when, in microseconds since 1970.
        marks: the messages concerned.
    """

    at: int
    marks: list[Mark]


class Acked(_Event, tag=1, frozen=True, gc=False, array_like=True):
    """Messages were acknowledged, and have left the queue."""


class Deferred(_Event, tag=2, frozen=True, gc=False, array_like=True):
    """Messages were acknowledged that the queue does not have yet."""


class Departure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How one message came to its end: what a dead letter says of it.

    Attributes:
        txid: of the message in this instance's log.
        reasons: `time_limit`, `forced_expire`, `max_cancels`, `max_deliveries`.
        deliveries: how often it was delivered: in all where that is recorded, and since the start
            of the instance where it is not.
        cancels: how often it was cancelled.
        last_consumer: who had it last, empty if nobody has had it.
    """

    txid: int
    reasons: tuple[str, ...]
    deliveries: int = 0
    cancels: int = 0
    last_consumer: str = ""


class Expired(_Event, tag=3, frozen=True, gc=False, array_like=True):
    """Messages were removed without having been acknowledged.

    Attributes:
        departures: for each mark, how it came to that.
        has_letters: whether a dead letter is published for each of them, after this.
    """

    departures: list[Departure]
    has_letters: bool = False


class Cancelled(_Event, tag=4, frozen=True, gc=False, array_like=True):
    """Messages were given back, and stay in the queue.

    Attributes:
        counts: for each mark, how often it has been cancelled.
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
    """Barriers were passed, and have left the queue."""


class Transferred(_Event, tag=8, frozen=True, gc=False, array_like=True):
    """Messages have another owner.

    Attributes:
        owner: the name of the instance.
        turns: for each mark, how many times it has changed hands; see ownership.py.
    """

    owner: str
    turns: list[int]


Event: TypeAlias = Acked | Deferred | Expired | Cancelled | Leased | Sent | Released | Transferred


def shifted(event: Event, microseconds: int) -> Event:
    """Return an event with its moments moved: from one clock to another."""
    if not microseconds:
        return event
    at = event.at + microseconds
    if isinstance(event, Cancelled):
        retry_at = [moment + microseconds for moment in event.retry_at]
        return msgspec.structs.replace(event, at=at, retry_at=retry_at)
    return msgspec.structs.replace(event, at=at)


def with_delays_from(event: Cancelled, now: int) -> Cancelled:
    """Return an event in which no delay goes on for longer than it was to last, from now on."""
    return cast("Cancelled", shifted(event, min(now - event.at, 0)))


class Within(msgspec.Struct, tag=9, frozen=True, gc=False, array_like=True):
    """An event, and which of several queues of one name it is of.

    Attributes:
        domain: what tells apart the queues of that name that instances have; empty if there is one.
        event: what happened.
    """

    domain: str
    event: Event


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Event | Within] = msgspec.msgpack.Decoder(Event | Within)


def encode(event: Event, domain: str = "") -> bytes:
    """An event as the body of an entry in the journal.

    Args:
        event: what happened.
        domain: see `Within`.
    """
    return _ENCODER.encode(Within(domain, event) if domain else event)


def decode(body: bytes) -> Event:
    """The event of an entry's body.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return decode_within(body).event


def decode_within(body: bytes) -> Within:
    """The same, with what queue it is of.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    found = _DECODER.decode(body)
    return found if isinstance(found, Within) else Within("", found)
