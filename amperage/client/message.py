"""Messages received from the server: a header and a body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from amperage.client.arguments import milliseconds
from amperage.client.errors import DecodeError, ProtocolError
from amperage.client.serialization import Decode
from amperage.wire.framing import FrameError
from amperage.wire.header import Header, HeaderError, decode_frame

_WITHOUT_BODY: Final = frozenset({"ack", "group_begin", "group_end"})

_Value = TypeVar("_Value")


class Message:
    """A message, record or mark received for a subscription or a query.

    Attributes:
        header: all header fields sent by the server.
        body: the message's payload, verbatim.
    """

    # The stream that returns the message sets the rest: `_decode` decodes the body for `value`,
    # `_report_outcome` reports the outcome of the message to the queue, and
    # `_is_settled_elsewhere` returns whether another copy of it was settled.

    __slots__ = ("_decode", "_is_settled_elsewhere", "_report_outcome", "body", "header")

    def __init__(self, header: Header, body: bytes) -> None:
        self.header = header
        self.body = body
        self._decode: Decode | None = None
        self._report_outcome: Callable[[Message, str | None], None] | None = None
        self._is_settled_elsewhere: Callable[[Message], bool] | None = None

    @property
    def command(self) -> str:
        """The kind of the message: publish, sow, oof, group_begin, group_end or ack."""
        return self.header.command

    @property
    def topic(self) -> str:
        """The topic that the message was published to."""
        return self.header.topic or ""

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body, decoded from JSON.

        Raises:
            ValueError: the body is not JSON.
        """
        return json.loads(self.body)

    @property
    def value(self) -> Any:
        """The body, decoded by the decoder of the subscription or of the client at each access.

        Without a decoder, it is the body. It is None for marks and acknowledgements.

        Raises:
            DecodeError: the decoder failed.
        """
        if self._decode is None:
            return self.body
        if self.command in _WITHOUT_BODY:
            return None
        return self._decoded(self._decode)

    def decode(self, kind: type[_Value]) -> _Value:
        """Decode a JSON body as a type.

        Args:
            kind: a `msgspec.Struct`, a dataclass, a TypedDict, or any other type that msgspec
                supports.

        Raises:
            DecodeError: the body is not of this type.
        """
        value: _Value = self._decoded(lambda body: msgspec.json.decode(body, type=kind))
        return value

    def _decoded(self, decode: Decode) -> Any:
        try:
            return decode(self.body)
        except Exception as error:
            bookmark = f", bookmark {self.bookmark}" if self.bookmark else ""
            raise DecodeError(
                f"topic {self.topic}{bookmark}: cannot decode the body: {error}"
            ) from error

    @property
    def sow_key(self) -> str | None:
        """The key of the record within its SOW topic."""
        return self.header.sow_key

    @property
    def bookmark(self) -> str | None:
        """The position of the message in the transaction log; opaque."""
        return self.header.bookmark

    @property
    def timestamp(self) -> str | None:
        """The time at which the server received the message, with the option `timestamp`."""
        return self.header.timestamp

    @property
    def correlation_id(self) -> str | None:
        """The correlation id set by the publisher."""
        return self.header.correlation_id

    @property
    def sub_id(self) -> str | None:
        """The id of the message's subscription; several of the same client joined by commas."""
        return self.header.sids or self.header.sub_id

    # Messages of queues

    @property
    def is_leased(self) -> bool:
        """Whether a queue waits for the outcome of the message, and has none from any copy."""
        return self._report_outcome is not None and not (
            self._is_settled_elsewhere and self._is_settled_elsewhere(self)
        )

    def ack(self) -> None:
        """Acknowledge a queue message, so that no consumer receives it again.

        The acknowledgement is sent with the next batch, soon; `flush` waits until the server has
        processed it. `ack`, `cancel` and `expire` have no effect on a message that is not from a
        queue, or after one of them was called.

        Raises:
            NotConnectedError: the client is closed.
            ConnectionLostError: the connection has ended, and the lease with it.
        """
        self._settle_once(None)

    def cancel(self, delay: float | None = None) -> None:
        """Return the message to the queue, which delivers it again.

        Args:
            delay: seconds before it is delivered again; None selects the queue's default.

        Raises:
            TypeError, ValueError: the delay is invalid.
            ClientError: as `ack`.
        """
        if delay is None:
            self._settle_once("cancel")
        else:
            self._settle_once(f"cancel,delay={milliseconds('delay', delay)}ms")

    def expire(self) -> None:
        """Make the queue treat the message as expired. Raises the errors of `ack`."""
        self._settle_once("expire")

    def extend(self, period: float | None = None) -> None:
        """Extend the lease of the message, before the queue takes the message back.

        Args:
            period: seconds from the server's receipt; None for the lease period at delivery.

        Raises:
            TypeError, ValueError: the period is invalid.
            ClientError: as `ack`.
        """
        if self._report_outcome is not None:
            length = "" if period is None else f"={milliseconds('period', period)}ms"
            self._report_outcome(self, f"extend{length}")

    def _settle_once(self, options: str | None) -> None:
        report_outcome, self._report_outcome = self._report_outcome, None
        if report_outcome is not None:
            report_outcome(self, options)

    def __repr__(self) -> str:
        return f"<Message {self.command} {self.topic} {self.body[:64]!r}>"


MessageListener = Callable[[Message], None]
"""A handler of the messages of a subscription."""

AsyncMessageListener = Callable[[Message], Awaitable[None] | None]
"""The handler of an asyncio client: a function, or a coroutine function, which is awaited."""


def split_batch(batch: Header, content: bytes) -> Iterator[Message]:
    """Yield the records in the content of a `sow` frame.

    Each record has its own header, with the length of the body that follows it (AMPS Command
    Reference, sow: Content from Server). Fields common to all records are in the frame's header.

    Args:
        batch: the header of the frame.
        content: the bytes after that header.

    Raises:
        ProtocolError: the content is not a sequence of records.
    """
    position = 0
    while position < len(content):
        header, start = _record_header(content, position)
        length = header.length if header.length is not None else len(content) - start
        end = start + length
        if length < 0 or end > len(content):
            raise ProtocolError(
                f"a record of {length} bytes in a batch that has {len(content) - start} left"
            )
        header.command = "sow"
        header.query_id = batch.query_id
        header.topic = header.topic or batch.topic
        header.timestamp = header.timestamp or batch.timestamp
        yield Message(header, content[start:end])
        position = end


def _record_header(content: bytes, position: int) -> tuple[Header, int]:
    """Decode the record header at a position; return it and the start of the body."""
    end = content.find(b"}", position) + 1
    if not end:
        raise ProtocolError(f"a record without a header: {content[position : position + 32]!r}")
    try:
        try:
            return decode_frame(content[position:end], b"")[0], end
        except FrameError:  # the brace was in a string: parse up to the end of the content
            header, rest = decode_frame(content[position:end], content[end:])
            return header, len(content) - len(rest)
    except (FrameError, HeaderError) as error:
        raise ProtocolError(f"a record's header cannot be read: {error}") from None
