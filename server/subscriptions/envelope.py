"""What the messages of one run have in common besides their topic and whom they go to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from server.expressions.context import MessageContext
from server.wire.header import json_text

if TYPE_CHECKING:
    from server.session import Session


class Envelope:
    """Where messages come from, and the header keys that follow from that.

    Args:
        publisher: the connection that they came from; None for messages of the server's own.
        now: when they were received, in seconds since 1970.
        correlation_id: the publisher's mark on them.

    Attributes:
        received: when they were received, in seconds since 1970.
        correlation_id: the publisher's mark on them.
        keys: header keys that all of them carry, as JSON text, each with its leading comma.
    """

    __slots__ = ("_publisher", "correlation_id", "keys", "received")

    def __init__(
        self, publisher: Session | None, now: float, correlation_id: str | None = None
    ) -> None:
        self._publisher = publisher
        self.received = now
        self.correlation_id = correlation_id
        self.keys = b"" if correlation_id is None else b',"x":' + json_text(correlation_id)
        if publisher is not None and publisher.user:
            self.keys += b',"user_id":' + json_text(publisher.user)

    @property
    def client_name(self) -> str:
        """The name of the client that published; empty for the server itself."""
        return "" if self._publisher is None else self._publisher.client_name

    @property
    def timestamp_key(self) -> bytes:
        """The header key for subscribers who asked when the server received a message."""
        return b',"ts":"%s"' % iso_timestamp(self.received).encode()

    def context(self, topic: str, body: bytes) -> MessageContext:
        """What filters may ask about a message besides its fields."""
        context = MessageContext()
        context.topic_name = topic
        context.message_size = len(body)
        context.correlation_id = self.correlation_id
        publisher = self._publisher
        if publisher is not None:
            context.client_name = publisher.client_name
            context.client_version = publisher.client_version
            context.user = publisher.user
            context.connection_name = publisher.connection_name
            context.remote_address = publisher.address
        return context


def iso_timestamp(seconds: float) -> str:
    """A moment as AMPS writes it: 20261120T192011.518031Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
