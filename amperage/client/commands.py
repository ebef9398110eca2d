"""Builds the headers of commands, for the blocking and the asyncio clients.

Arguments have the names of the header fields in the AMPS Command Reference, and texts are sent
verbatim. Arguments that are None are omitted. Each function raises TypeError or ValueError for an
invalid argument; see `amperage.client.arguments`.
"""
# ruff: noqa: A002 - a filter is called filter

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypedDict, TypeVar

from amperage.client.arguments import choice, joined, number, required_text, text, texts
from amperage.client.limits import MAX_COMMAND_HEADER_SIZE
from amperage.wire.header import Header, encode_header, json_text

AckType = Literal["received", "processed", "persisted", "completed", "stats"]

_ALL_ACKS: Final = ("received", "processed", "persisted", "completed", "stats")
_PUBLISH_ACKS: Final = ("received", "processed", "persisted", "completed")
_QUERY_ACKS: Final = ("received", "processed", "completed", "stats")

DEFAULT_BATCH_SIZE: Final = 10
"""Records per frame (AMPS Command Reference, sow: the default of client libraries)."""

MESSAGES_PER_WRITE: Final = 512

_FIELDS_OF_PUBLISHES: Final = {"correlation_id": b"x", "expiration": b"e", "sow_key": b"k"}

_T = TypeVar("_T")


class PublishFields(TypedDict, total=False):
    """The optional header fields of a publish."""

    correlation_id: str | None
    expiration: int | None
    sow_key: str | None
    sequence: int | None


class SubscribeFields(TypedDict, total=False):
    """The optional header fields of a subscription."""

    filter: str | None
    options: str | None
    bookmark: str | None
    top_n: int | None
    sub_id: str | None
    max_backlog: int | None


class QueryFields(TypedDict, total=False):
    """The optional header fields of a SOW query."""

    filter: str | None
    options: str | None
    bookmark: str | None
    order_by: str | None
    batch_size: int | None
    top_n: int | None
    sow_keys: Iterable[str] | None


class DeleteFields(TypedDict, total=False):
    """The optional header fields of a deletion."""

    filter: str | None
    sow_keys: Iterable[str] | None
    options: str | None
    sequence: int | None


class QueryAndSubscribeFields(QueryFields, total=False):
    """The optional header fields of a SOW query with a subscription."""

    sub_id: str | None


class LogonParameters(TypedDict, total=False):
    """Options of each logon of a client that reconnects automatically.

    Attributes:
        correlation_id: a text for the server's log and admin pages; base64 characters only.
        options: the options field, such as "ack_conflation=100ms".
    """

    correlation_id: str | None
    options: str | None


def logon_options(given: LogonParameters | None) -> LogonParameters:
    """Check and return the logon options; an empty mapping for None.

    Raises:
        TypeError: an option is unknown, or is not text.
    """
    options = given or {}
    unknown = sorted(options.keys() - LogonParameters.__annotations__.keys())
    if unknown:
        raise TypeError(f"logon_options: unexpected {', '.join(unknown)}")
    text("correlation_id", options.get("correlation_id"))
    text("options", options.get("options"))
    return options


def chunks(messages: Iterable[_T]) -> Iterator[list[_T]]:
    """Yield messages in lists of at most `MESSAGES_PER_WRITE`, for one write each."""
    remaining = iter(messages)
    while chunk := list(islice(remaining, MESSAGES_PER_WRITE)):
        yield chunk


def encoded(header: Header) -> bytes:
    """Encode the header of a command.

    Raises:
        ValueError: it is larger than the servers' limit.
    """
    data = encode_header(header)
    if len(data) > MAX_COMMAND_HEADER_SIZE:
        raise ValueError(
            f"the header of a {header.command} has {len(data)} bytes, expected"
            f" {MAX_COMMAND_HEADER_SIZE} at most: give the topic, filter, keys or bookmarks in"
            " smaller portions"
        )
    return data


def publish_ack(ack: str) -> str:
    """Return the acknowledgement to wait for; refuse a type that no server sends."""
    return choice("ack", ack, _PUBLISH_ACKS)


def stream_ack_types(command: str, acks: Iterable[str] | None) -> tuple[str, ...]:
    """Check and return the acknowledgements for a stream; a query's stream ends with the last."""
    choices = _QUERY_ACKS if command == "sow" else _ALL_ACKS
    return tuple(choice("acks", ack, choices) for ack in texts("acks", acks))


def publish_command(delta: bool) -> str:
    """Return the shortest name of a publish command."""
    return "delta_publish" if delta else "p"


def publish_header(
    topic: str,
    *,
    delta: bool = False,
    correlation_id: str | None = None,
    expiration: int | None = None,
    sow_key: str | None = None,
    sequence: int | None = None,
) -> Header:
    """Return the header of a publish or delta publish."""
    return Header(
        command=publish_command(delta),
        topic=required_text("topic", topic),
        correlation_id=text("correlation_id", correlation_id),
        expiration=number("expiration", expiration),
        sow_key=text("sow_key", sow_key),
        sequence=number("sequence", sequence),
    )


def with_fields(
    starts: Sequence[bytes], fields: Mapping[str, Sequence[str | int | None]]
) -> list[bytes]:
    """Add fields to the headers of publishes.

    Args:
        starts: the encoded headers, without their closing brace.
        fields: a value for each header, or None, by the names of `publish`'s arguments.

    Raises:
        ValueError: a header is larger than the servers' limit, or a number is out of range.
        TypeError: a value is not text, or not a number.
    """
    headers = list(starts)
    for name, values in fields.items():
        key = b',"%b":' % _FIELDS_OF_PUBLISHES[name]
        check: Callable[[str, Any], Any] = number if name == "expiration" else text
        headers = [
            start if value is None else b"%b%b%b" % (start, key, json_text(check(name, value)))
            for start, value in zip(headers, values, strict=True)
        ]
    if max(map(len, headers), default=0) > MAX_COMMAND_HEADER_SIZE:
        raise ValueError(f"the header of a publish has more than {MAX_COMMAND_HEADER_SIZE} bytes")
    return headers


def subscribe_header(
    topic: str,
    *,
    delta: bool = False,
    filter: str | None = None,
    options: str | None = None,
    bookmark: str | None = None,
    top_n: int | None = None,
    sub_id: str | None = None,
    max_backlog: int | None = None,
) -> Header:
    """Return the header of a subscription."""
    text("options", options)
    if number("max_backlog", max_backlog) is not None:
        backlog = f"max_backlog={max_backlog}"
        options = f"{options},{backlog}" if options else backlog
    return Header(
        command="delta_subscribe" if delta else "subscribe",
        topic=required_text("topic", topic),
        short_filter=text("filter", filter),
        short_options=text("options", options),
        bookmark=text("bookmark", bookmark),
        top_n=number("top_n", top_n),
        sub_id=text("sub_id", sub_id),
    )


def query_header(
    command: str,
    topic: str,
    *,
    filter: str | None = None,
    options: str | None = None,
    bookmark: str | None = None,
    order_by: str | None = None,
    batch_size: int | None = None,
    top_n: int | None = None,
    sow_keys: Iterable[str] | None = None,
    sub_id: str | None = None,
) -> Header:
    """Return the header of a SOW query, with or without a subscription."""
    return Header(
        command=command,
        topic=required_text("topic", topic),
        short_filter=text("filter", filter),
        short_options=text("options", options),
        bookmark=text("bookmark", bookmark),
        order_by=text("order_by", order_by),
        batch_size=number("batch_size", batch_size) or DEFAULT_BATCH_SIZE,
        top_n=number("top_n", top_n),
        sow_keys=_keys(sow_keys),
        sub_id=text("sub_id", sub_id),
    )


def delete_header(
    topic: str,
    *,
    filter: str | None = None,
    sow_keys: Iterable[str] | None = None,
    has_body: bool,
    options: str | None = None,
    sequence: int | None = None,
) -> Header:
    """Return the header of a deletion.

    Raises:
        ValueError: the records are selected in no way, or in several ways.
    """
    if (filter is not None) + (sow_keys is not None) + has_body != 1:
        raise ValueError("sow_delete takes exactly one of filter, sow_keys and body")
    return Header(
        command="sow_delete",
        topic=required_text("topic", topic),
        short_filter=text("filter", filter),
        short_options=text("options", options),
        sow_keys=_keys(sow_keys),
        sequence=number("sequence", sequence),
    )


def acknowledge_header(topic: str, bookmarks: Iterable[str], options: str | None) -> Header:
    """Return the header that acknowledges messages of a queue, or reports another outcome."""
    return Header(
        command="sow_delete",
        topic=required_text("topic", topic),
        bookmark=joined("bookmarks", bookmarks),
        short_options=text("options", options),
    )


def _keys(keys: Iterable[str] | None) -> str | None:
    """Return a list of SOW keys; refuse an empty one, which would select all records."""
    if keys is None:
        return None
    if not (listed := joined("sow_keys", keys)):
        raise ValueError("sow_keys: expected at least one key")
    return listed
