"""What the server sends: a header and a body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from amperage.client.arguments import milliseconds
from amperage.client.errors import ProtocolError
from amperage.wire.framing import FrameError
from amperage.wire.header import Header, HeaderError, decode_frame


class Message:
    """One message, record or mark that arrived for a subscription or a query.

    Attributes:
        header: every header field that the server sent.
        body: the message's data, verbatim.
    """

    # `_settle` tells the queue how the message was processed, `_is_done` whether the queue has been
    # told of a copy. The stream that hands the message out sets both.

    __slots__ = ("_is_done", "_settle", "body", "header")

    def __init__(self, header: Header, body: bytes) -> None:
        self.header = header
        self.body = body
        self._settle: Callable[[Message, str | None], None] | None = None
        self._is_done: Callable[[Message], bool] | None = None

    @property
    def command(self) -> str:
        """What arrived: publish, sow, oof, group_begin, group_end or ack."""
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
        """The body as what its JSON text stands for.

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(self.body)

    @property
    def sow_key(self) -> str | None:
        """The key of the record within its SOW topic."""
        return self.header.sow_key

    @property
    def bookmark(self) -> str | None:
        """Where the message stands in the transaction log; opaque."""
        return self.header.bookmark

    @property
    def timestamp(self) -> str | None:
        """When the server took the message, where the option `timestamp` asked for that."""
        return self.header.timestamp

    @property
    def correlation_id(self) -> str | None:
        """What the publisher said it belongs to."""
        return self.header.correlation_id

    @property
    def sub_id(self) -> str | None:
        """The subscription that it came for; several of the client's with commas between."""
        return self.header.sids or self.header.sub_id

    # Messages of queues

    @property
    def is_leased(self) -> bool:
        """Whether a queue waits to hear what became of the message, be it of another copy."""
        return self._settle is not None and not (self._is_done and self._is_done(self))

    def ack(self) -> None:
        """Tell the queue that the message is done with. Nobody will get it again.

        That goes out with the next acknowledgements, soon; `flush` waits until the server has it.
        This, `cancel` and `expire` have no effect on a message that does not come from a queue, or
        of which one of them has been said already.

        Raises:
            NotConnectedError: the client is closed.
            ConnectionLostError: the connection has ended, and the lease with it.
        """
        self._settle_as(None)

    def cancel(self, delay: float | None = None) -> None:
        """Give the message back to the queue, which delivers it again.

        Args:
            delay: seconds that it is to stay away; None for what the queue does.

        Raises:
            TypeError, ValueError: the delay is no time.
            ClientError: as `ack`.
        """
        if delay is None:
            self._settle_as("cancel")
        else:
            self._settle_as(f"cancel,delay={milliseconds('delay', delay)}ms")

    def expire(self) -> None:
        """Have the queue treat the message as expired; raises as `ack` does."""
        self._settle_as("expire")

    def extend(self, period: float | None = None) -> None:
        """Keep the message for longer before the queue takes it back.

        Args:
            period: seconds, from when the server hears of it; None for as long as when it came.

        Raises:
            TypeError, ValueError: the period is no time.
            ClientError: as `ack`.
        """
        if self._settle is not None:
            length = "" if period is None else f"={milliseconds('period', period)}ms"
            self._settle(self, f"extend{length}")

    def _settle_as(self, options: str | None) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self, options)

    def __repr__(self) -> str:
        return f"<Message {self.command} {self.topic} {self.body[:64]!r}>"


def split_batch(batch: Header, content: bytes) -> Iterator[Message]:
    """Divide the content of a `sow` frame into its records.

    Each record is a header of its own with the length of the body behind it (AMPS Command
    Reference, sow: Content from Server). What is common to all stands in the frame's header.

    Args:
        batch: the header of the frame.
        content: everything behind that header.

    Raises:
        ProtocolError: the content is not such a sequence.
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
    """Decode the record header at a position; also say where its body starts."""
    end = content.find(b"}", position) + 1
    if not end:
        raise ProtocolError(f"a record without a header: {content[position : position + 32]!r}")
    try:
        try:
            return decode_frame(content[position:end], b"")[0], end
        except FrameError:  # the brace stood in a string: look at everything behind it
            header, rest = decode_frame(content[position:end], content[end:])
            return header, len(content) - len(rest)
    except (FrameError, HeaderError) as error:
        raise ProtocolError(f"a record's header cannot be read: {error}") from None
