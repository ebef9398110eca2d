"""How messages of one topic are framed for one connection.

All subscriptions that a connection has on a topic, and that want messages in the same form, share
one delivery: the message is sent once, with the ids of all of them (AMPS User Guide,
Subscriptions). The header is prepared when the set of ids is known; what varies from message to
message is the body's length and, rarely, a few more keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from server.subscriptions.envelope import Envelope
from server.subscriptions.failures import give_up_on
from server.subscriptions.message_run import MessageRun
from server.subscriptions.presentation import Presentation
from server.wire.framing import frame_head
from server.wire.header import json_text

if TYPE_CHECKING:
    from server.subscriptions.subscription import Subscription

_MOST_HEADS_KEPT: Final = 1024


class Delivery(Protocol):
    """Takes messages of a topic for whoever it was made for."""

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Take messages.

        Args:
            bodies: the messages' bodies, in order.
            envelope: what they have in common.
        """


class Writer(Protocol):
    """Takes frames for a connection: its outbox, or what counts what goes there."""

    def write(self, data: bytes, /) -> None:
        """Take one."""

    def write_run(self, data: bytes, messages: int, /) -> None:
        """Take several."""


Recipient: TypeAlias = "tuple[Delivery, Sequence[Subscription]]"
"""A delivery, and the subscriptions that it was made for."""


def hand_over(recipients: Iterable[Recipient], bodies: Sequence[bytes], envelope: Envelope) -> None:
    """Deliver messages; where that fails, the subscriptions concerned end (see `Failures`).

    Args:
        recipients: to whom.
        bodies: the messages' bodies, in order.
        envelope: what they have in common.
    """
    for delivery, subscriptions in recipients:
        try:
            delivery.deliver(bodies, envelope)
        except Exception as error:  # whatever it is, whoever published must not pay for it
            give_up_on(subscriptions, error)


class _Heads(dict[int, bytes]):
    """Frame heads (length and header) by body length, made when first asked for.

    Args:
        left: the header up to the body's length.
        right: its end.

    Attributes:
        left: see above.
        right: see above.
    """

    __slots__ = ("left", "right")

    def __init__(self, left: bytes, right: bytes) -> None:
        super().__init__()
        self.left: Final = left
        self.right: Final = right

    def __missing__(self, body_length: int) -> bytes:
        head = self.make(body_length, b"")
        if len(self) >= _MOST_HEADS_KEPT:
            self.clear()
        self[body_length] = head
        return head

    def make(self, body_length: int, keys: bytes) -> bytes:
        """Make the head of one frame.

        Args:
            body_length: the body's length in bytes.
            keys: further header keys as JSON text, each with its leading comma.
        """
        header = b'%s,"l":%d%s%s' % (self.left, body_length, keys, self.right)
        return frame_head(header, body_length)


class DirectDelivery:
    """Puts messages into a connection's outbox as they come.

    Args:
        outbox: takes frames for the connection.
        topic: the topic's name as subscribers see it.
        sub_ids: the ids of the subscriptions that the messages are for, in the order they were
            made.
        presentation: the form that these subscriptions want.
    """

    __slots__ = ("_frames", "_further_keys", "_heads", "_outbox", "_present")

    def __init__(
        self, outbox: Writer, topic: str, sub_ids: Sequence[str], presentation: Presentation
    ) -> None:
        self._outbox = outbox
        self._present = presentation.present if presentation.changes_bodies else None
        self._further_keys = presentation.keys if presentation.asks_for_keys else None
        self._frames = presentation.frames
        left = b'{"c":"p","t":' + json_text(topic)
        self._heads = _Heads(left, presentation.header_end(sub_ids))

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Frame messages and put them into the connection's outbox."""
        if self._present is not None:
            bodies = self._present(bodies)
        keys = envelope.keys
        if self._further_keys is not None:
            keys += self._further_keys(envelope)
        heads = self._heads
        if len(bodies) == 1:  # what filtered messages, and those of replays, come as
            body = bodies[0]
            size = len(body)
            self._outbox.write((heads.make(size, keys) if keys else heads[size]) + body)
            return
        chunks: list[bytes] = []
        if keys:
            for body in bodies:
                chunks += (heads.make(len(body), keys), body)
        else:
            for body in bodies:
                chunks += (heads[len(body)], body)
        self._outbox.write_run(b"".join(chunks), len(bodies))

    def deliver_run(self, run: MessageRun) -> None:
        """Frame messages that have bookmarks of their own, and put them into the outbox."""
        heads = self._heads
        self._outbox.write_run(self._frames(run, heads.left, heads.right), len(run))


def deliver_run(run: MessageRun, delivery: Delivery) -> None:
    """Deliver messages that have bookmarks of their own.

    Whoever does not frame them directly takes them one by one.
    """
    if isinstance(delivery, DirectDelivery):
        delivery.deliver_run(run)
        return
    for position, body in enumerate(run.bodies):
        delivery.deliver((body,), run.envelope(position))
