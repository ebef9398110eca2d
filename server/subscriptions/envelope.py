"""What the messages of one run have in common besides their topic and whom they go to."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from amperage.wire.header import json_text
from server.expressions.context import MessageContext

if TYPE_CHECKING:
    from server.subscriptions.client import Client


class Envelope:
    """Where messages come from, what their publisher said about them, and the header keys for it.

    Args:
        publisher: the client that they came from; None for messages of the server's own.
        received: when they were received, in seconds since 1970.
        correlation_id: the publisher's mark on them.
        sow_key: the SOW key that the publisher gave.
        expiration: how long they are to live, in seconds, 0 for ever; None for the topic's default.
        delta: whether they hold only the fields that change.
        sequence: the publisher's number of a message, 0 for none.

    Attributes:
        sequences: of a run of messages, the publisher's number of each; empty if it gives none, or
            where they do not matter.
        correlation_ids: of a run, the mark on each; empty if all have that of the envelope.
        lifetimes: of a run, how long each is to live; empty if all have that of the envelope.
        bookmark: the name of a message in the transaction log, empty for none.
        keys: header keys that all of them carry, as JSON text, each with its leading comma.
    """

    __slots__ = (
        "bookmark",
        "correlation_id",
        "correlation_ids",
        "delta",
        "expiration",
        "keys",
        "lifetimes",
        "publisher",
        "received",
        "sequence",
        "sequences",
        "sow_key",
    )

    is_replicated = False
    """Whether the messages were published to another instance."""

    def __init__(
        self,
        publisher: Client | None,
        received: float,
        correlation_id: str | None = None,
        sow_key: str | None = None,
        expiration: int | None = None,
        *,
        delta: bool = False,
        sequence: int = 0,
    ) -> None:
        self.publisher = publisher
        self.received = received
        self.correlation_id = correlation_id
        self.sow_key = sow_key
        self.expiration = expiration
        self.delta = delta
        self.sequence = sequence
        self.sequences: Sequence[int] = ()
        self.correlation_ids: Sequence[str] = ()
        self.lifetimes: Sequence[int] = ()
        self.bookmark = ""
        self.keys = correlation_key(correlation_id)
        if publisher is not None and publisher.user:
            self.keys += b',"user_id":' + json_text(publisher.user)

    @property
    def client_name(self) -> str:
        """The name of the client that published; empty for the server itself."""
        return "" if self.publisher is None else self.publisher.client_name

    @property
    def timestamp_key(self) -> bytes:
        """The header key for subscribers who asked when the server received a message."""
        return b',"ts":"%s"' % iso_timestamp(self.received).encode()

    @property
    def bookmark_key(self) -> bytes:
        """The header key for subscribers who asked for bookmarks; empty if there is none."""
        return b',"bm":"%s"' % self.bookmark.encode() if self.bookmark else b""

    def held_since(self, received: float, bookmark: str) -> Self:
        """This envelope with the moment and the bookmark of another one."""
        held = copy(self)
        held.received, held.bookmark = received, bookmark
        return held

    def of_one(self, position: int) -> Self:
        """This envelope for one message of the run, which is published by itself."""
        own, marks, lifetimes = self, self.correlation_ids, self.lifetimes
        if marks or lifetimes:
            own = copy(self)
            own.correlation_ids, own.lifetimes = (), ()
            if lifetimes:
                own.expiration = lifetimes[position]
            if marks:
                own = own.marked(marks[position])
        if self.sequences:
            own.sequence = self.sequences[position]
        return own

    def marked(self, correlation_id: str) -> Self:
        """This envelope for a message of the run with some correlation id, which may be none."""
        if correlation_id == (self.correlation_id or ""):
            return self
        own = copy(self)
        own.correlation_id = correlation_id or None
        others = self.keys[len(correlation_key(self.correlation_id)) :]
        own.keys = correlation_key(correlation_id) + others
        return own

    def further_keys(self, *, timestamp: bool, bookmark: bool, record: bool) -> bytes:
        """Header keys for those who ask for them, as JSON text, each with its leading comma.

        Args:
            timestamp: when the server received the message.
            bookmark: its name in the transaction log.
            record: the SOW key of its record, if only the envelope knows that: topics with records
                know the keys of their records themselves.
        """
        keys = self.timestamp_key if timestamp else b""
        if bookmark:
            keys += self.bookmark_key
        return keys + self.record_key if record else keys

    @property
    def record_sow_key(self) -> str | None:
        """The SOW key of the record that a message has become, if only the envelope knows it."""
        return None

    @property
    def record_key(self) -> bytes:
        """The header key for that SOW key; empty if there is none."""
        key = self.record_sow_key
        return b"" if key is None else b',"k":' + json_text(key)

    def context(self, topic: str, body: bytes) -> MessageContext:
        """What filters may ask about a message besides its fields."""
        context = MessageContext()
        context.topic_name = topic
        context.message_size = len(body)
        context.correlation_id = self.correlation_id
        context.bookmark = self.bookmark or None
        self.describe_publisher(context)
        return context

    def describe_publisher(self, context: MessageContext) -> None:
        """Set what filters may ask about whoever published a message."""
        publisher = self.publisher
        if publisher is not None:
            context.client_name = publisher.client_name
            context.client_version = publisher.client_version
            context.user = publisher.user
            context.connection_name = publisher.connection_name
            context.remote_address = publisher.address


def correlation_key(correlation_id: str | None) -> bytes:
    """The header key for a correlation id, as JSON text with a leading comma; empty for none."""
    return b',"x":' + json_text(correlation_id) if correlation_id else b""


def iso_timestamp(seconds: float) -> str:
    """A moment as AMPS writes it: 20261120T192011.518031Z."""
    whole, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_iso_second(whole)}.{microseconds:06d}Z"


@lru_cache(maxsize=64)
def _iso_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%S")
