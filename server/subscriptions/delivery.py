"""How messages of one topic are framed for one connection.

All subscriptions that a connection has on a topic share one delivery: the message is sent once,
with the ids of all of them (AMPS User Guide, Subscriptions). The header is prepared when the set of
ids is known; what varies from message to message is the body's length and, rarely, a few more keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from server.subscriptions.outbox import Outbox
from server.wire.framing import frame_head

_MOST_HEADS_KEPT: Final = 1024

json_text: Final = msgspec.json.encode
"""A text as a JSON string, quotes included, in bytes."""


class _Heads(dict[int, bytes]):
    """Frame heads (length and header) by body length, made when first asked for."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: bytes, right: bytes) -> None:
        super().__init__()
        self._left = left
        self._right = right

    def __missing__(self, body_length: int) -> bytes:
        head = self.make(body_length, b"")
        if len(self) >= _MOST_HEADS_KEPT:
            self.clear()
        self[body_length] = head
        return head

    def make(self, body_length: int, extra: bytes) -> bytes:
        """Make the head of one frame.

        Args:
            body_length: the body's length in bytes.
            extra: further header keys as JSON text, each with its leading comma.
        """
        header = b'%s,"l":%d%s%s' % (self._left, body_length, extra, self._right)
        return frame_head(header, body_length)


class Delivery:
    """Frames the messages of one topic for one connection.

    Args:
        outbox: the connection's outbox.
        topic: the topic's name as subscribers see it.
        sub_ids: the ids of the subscriptions that the messages are for, in the order they were
        made.
    """

    __slots__ = ("_heads", "_outbox")

    def __init__(self, outbox: Outbox, topic: str, sub_ids: Sequence[str]) -> None:
        self._outbox = outbox
        sids = json_text(",".join(sub_ids))
        self._heads = _Heads(b'{"c":"p","t":' + json_text(topic), b',"sids":' + sids + b"}")

    def deliver(self, bodies: Sequence[bytes], extra: bytes) -> None:
        """Put messages into the connection's outbox.

        Args:
            bodies: the messages' bodies, in order.
            extra: header keys that all of them carry besides topic, length and subscription ids,
                as JSON text, each with its leading comma.
        """
        heads = self._heads
        chunks: list[bytes] = []
        if extra:
            for body in bodies:
                chunks += (heads.make(len(body), extra), body)
        else:
            for body in bodies:
                chunks += (heads[len(body)], body)
        self._outbox.write(b"".join(chunks))


class TracedDelivery:
    """A delivery that also writes what it sends to the log, for logs that ask for it.

    Args:
        delivery: delivers the messages.
        trace: takes the body of each message.
    """

    __slots__ = ("_delivery", "_trace")

    def __init__(self, delivery: Delivery, trace: Callable[[bytes], None]) -> None:
        self._delivery = delivery
        self._trace = trace

    def deliver(self, bodies: Sequence[bytes], extra: bytes) -> None:
        """Deliver, and say so."""
        self._delivery.deliver(bodies, extra)
        for body in bodies:
            self._trace(body)
