"""The commands' options, once, for both shells; and the headers that carry them.

The names are those of the header fields in the AMPS Command Reference, the texts are sent as they
are. An option that is not given, or None, is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal, TypedDict

from server.wire.header import Header

AckType = Literal["received", "processed", "persisted", "completed", "stats"]


class LogonOptions(TypedDict, total=False):
    """Options of a logon.

    Attributes:
        correlation_id: a text for the server's log and admin pages; base64 characters only.
        options: the options field, such as "ack_conflation=100ms".
    """

    correlation_id: str | None
    options: str | None


class PublishOptions(TypedDict, total=False):
    """Options of a publish or delta publish.

    Attributes:
        correlation_id: passed on to subscribers; base64 characters only.
        expiration: the record's lifetime in seconds.
        sow_key: the record's key, for topics that let the publisher say it.
        sequence: the message's number from this client name. A server that has it already takes
            the message for a duplicate.
    """

    correlation_id: str | None
    expiration: int | None
    sow_key: str | None
    sequence: int | None


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription.

    Attributes:
        filter: the content filter.
        options: the options field, such as "oof,conflation=1s" or "max_backlog=10".
        bookmark: where in the transaction log to start.
        top_n: how many messages to replay at most.
        sub_id: the subscription's id. One is made up where none is given; with the options
            `replace`, `pause` or `resume` it names the subscription to change.
        acks: acknowledgements to hand out between the messages, such as ("completed",).
    """

    filter: str | None
    options: str | None
    bookmark: str | None
    top_n: int | None
    sub_id: str | None
    acks: Iterable[AckType] | None


class QueryOptions(TypedDict, total=False):
    """Options of a SOW query.

    Attributes:
        filter: the content filter.
        options: the options field, such as "select=[-/,+/id]" or "top_n=10,skip_n=20".
        bookmark: the moment of a historical query.
        order_by: what to sort by, such as "/price DESC".
        batch_size: how many records the server puts into one frame; 10 if not given.
        top_n: how many records to return at most.
        sow_keys: return the records with these keys.
        acks: acknowledgements to hand out between the records, such as ("stats",).
    """

    filter: str | None
    options: str | None
    bookmark: str | None
    order_by: str | None
    batch_size: int | None
    top_n: int | None
    sow_keys: Iterable[str] | None
    acks: Iterable[AckType] | None


class QueryAndSubscribeOptions(QueryOptions, total=False):
    """Options of a SOW query with a subscription: those of a query, and the subscription's id.

    Attributes:
        sub_id: the id of subscription and query; see `SubscribeOptions`.
    """

    sub_id: str | None


class DeleteOptions(TypedDict, total=False):
    """What a deletion removes: exactly one of filter, sow_keys and body; and how.

    Attributes:
        filter: the records that match this content filter.
        sow_keys: the records with these keys.
        body: the record that a publish of this message would update.
        sequence: the command's number from this client name. A server that has it already takes
            the command for a duplicate.
        persisted: whether to wait until the deletion is on stable storage.
    """

    filter: str | None
    sow_keys: Iterable[str] | None
    body: bytes | None
    sequence: int | None
    persisted: bool


DEFAULT_BATCH_SIZE: Final = 10
"""Records a frame (AMPS Command Reference, sow: what client libraries ask for)."""

_MESSAGES_A_WRITE: Final = 512


def chunks(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut messages into lists that are worth one write each."""
    remaining = iter(bodies)
    while chunk := list(islice(remaining, _MESSAGES_A_WRITE)):
        yield chunk


def joined(texts: Iterable[str] | None) -> str | None:
    """A comma-separated list, or None for none."""
    return ",".join(texts or ()) or None


def publish_header(command: str, topic: str, options: PublishOptions) -> Header:
    """The header of a publish or delta publish."""
    return Header(
        command=command,
        topic=topic,
        correlation_id=options.get("correlation_id"),
        expiration=options.get("expiration"),
        sow_key=options.get("sow_key"),
        sequence=options.get("sequence"),
    )


def subscribe_header(topic: str, delta: bool, options: SubscribeOptions) -> Header:
    """The header of a subscription."""
    return Header(
        command="delta_subscribe" if delta else "subscribe",
        topic=topic,
        short_filter=options.get("filter"),
        short_options=options.get("options"),
        bookmark=options.get("bookmark"),
        top_n=options.get("top_n"),
        sub_id=options.get("sub_id"),
    )


def query_header(command: str, topic: str, options: QueryOptions) -> Header:
    """The header of a SOW query, with or without a subscription."""
    return Header(
        command=command,
        topic=topic,
        short_filter=options.get("filter"),
        short_options=options.get("options"),
        bookmark=options.get("bookmark"),
        order_by=options.get("order_by"),
        batch_size=options.get("batch_size") or DEFAULT_BATCH_SIZE,
        top_n=options.get("top_n"),
        sow_keys=joined(options.get("sow_keys")),
    )
