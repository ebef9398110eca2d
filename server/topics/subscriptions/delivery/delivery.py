"""Framing of a topic's messages for one connection.

All subscriptions that a connection has on a topic, with messages in the same form, share one
delivery: the message is sent once, with the ids of all of them (AMPS User Guide, Subscriptions).
The header is prepared when the set of ids is known; only the body's length and, rarely, a few more
keys vary from message to message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from amperage.wire.frame_slices import FrameSlices, framed, framed_shared
from amperage.wire.framing import frame_head
from amperage.wire.header import json_text
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.message_batch import MessageBatch
from server.topics.subscriptions.delivery.outbox import LARGE_BODY, Outbox
from server.topics.subscriptions.delivery.presentation import Presentation
from server.topics.subscriptions.delivery.record_frames import frames
from server.topics.subscriptions.limits.failures import end_failed_subscriptions

if TYPE_CHECKING:
    from server.topics.subscriptions.subscription import Subscription


_MIN_COVERAGE: Final = 0.25
"""The share of the messages that connections must get on average, so that going through all of them
for each connection pays."""


class Delivery(Protocol):
    """Delivers messages of a topic to the subscriptions that it was made for."""

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Deliver messages.

        Args:
            bodies: the messages' bodies, in order.
            envelope: their common properties.
        """


class FrameWriter(Protocol):
    """Buffers frames for a connection: its outbox, a `CountedOutbox`, or a `Reservation`."""

    def write(self, data: bytes, /) -> None:
        """Append one frame."""

    def write_batch(self, data: bytes, messages: int, /) -> None:
        """Append several frames."""


Recipient: TypeAlias = "tuple[Delivery, Sequence[Subscription]]"
"""A delivery, and the subscriptions that it was made for."""


def deliver_to_all(
    recipients: Iterable[Recipient], bodies: Sequence[bytes], envelope: Envelope
) -> None:
    """Deliver messages; a failed delivery ends its subscriptions (see `SubscriptionFailures`).

    Args:
        recipients: the deliveries with their subscriptions.
        bodies: the messages' bodies, in order.
        envelope: their common properties.
    """
    for delivery, subscriptions in recipients:
        try:
            delivery.deliver(bodies, envelope)
        except Exception as error:  # no error of a subscription may fail the publish
            end_failed_subscriptions(subscriptions, error)


def is_cheaper_by_connection(covered: int, connections: int, topics: int) -> bool:
    """Return whether messages of several topics are better framed connection by connection.

    Args:
        covered: how many pairs of a topic and a connection that gets its messages there are.
        connections: the connections for which all messages are examined.
        topics: the topics that any of them gets messages of.
    """
    return covered >= _MIN_COVERAGE * connections * topics


def header_start(topic: str) -> bytes:
    """Return the header of messages of a topic, up to the length of the body."""
    return b'{"c":"p","t":' + json_text(topic)


class DirectDelivery:
    """Writes messages to a connection's outbox immediately, without conflation.

    Args:
        outbox: takes frames for the connection.
        topic: the topic's name as subscribers see it.
        sub_ids: the ids of the subscriptions that get the messages, in order of creation.
        presentation: the form of their messages.

    Attributes:
        outbox: see above.
        header_start: the header of messages up to the length of the body.
        header_end: its end, behind all other keys.
        presentation: see above.
    """

    def __init__(
        self, outbox: FrameWriter, topic: str, sub_ids: Sequence[str], presentation: Presentation
    ) -> None:
        self.outbox = outbox
        self._present_bodies = presentation.present_bodies if presentation.changes_bodies else None
        self._optional_keys = presentation.optional_keys if presentation.has_optional_keys else None
        self.presentation = presentation
        self.header_start = header_start(topic)
        self.header_end = presentation.header_end(sub_ids)

    @property
    def has_sow_key(self) -> bool:
        """Always false: the messages have no records."""
        return False

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Frame messages and write them to the connection's outbox."""
        if self._present_bodies is not None:
            bodies = self._present_bodies(bodies)
        header_keys = envelope.header_keys
        if envelope.numbers and self.presentation.has_bookmark:
            self._deliver_marked(bodies, envelope)
            return
        if self._optional_keys is not None:
            header_keys += self._optional_keys(envelope)
        if (
            len(bodies) == 1
            and not isinstance(bodies, FrameSlices)
            and len(bodies[0]) >= LARGE_BODY
        ):
            self._deliver_large(bodies[0], header_keys)
            return
        outbox, header_end = self.outbox, header_keys + self.header_end
        if isinstance(outbox, Outbox) and outbox.is_sharing:
            outbox.write_batch(framed_shared(bodies, self.header_start, header_end), len(bodies))
        else:
            outbox.write_batch(framed(bodies, self.header_start, header_end), len(bodies))

    def _deliver_marked(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Frame messages with a bookmark each, and write them to the connection's outbox."""
        header_keys = envelope.header_keys
        if self.presentation.has_timestamp:
            header_keys += envelope.timestamp_key
        publisher, numbers = envelope.bookmark_publisher, envelope.numbers
        data = frames(
            self.header_start, (), bodies, header_keys, publisher, numbers, self.header_end
        )
        self.outbox.write_batch(data, len(bodies))

    def _deliver_large(self, body: bytes, keys: bytes) -> None:
        """Write a message to the outbox in two parts, the second of which is the body itself."""
        size = len(body)
        header = self.header_start + b',"l":%d' % size + keys + self.header_end
        self.outbox.write_batch(frame_head(header, size), 0)
        self.outbox.write(body)

    def deliver_batch(self, batch: MessageBatch) -> None:
        """Frame messages that have bookmarks of their own, and write them to the outbox."""
        frames = self.presentation.frames(batch, self.header_start, self.header_end)
        self.outbox.write_batch(frames, len(batch))


def deliver_batch(batch: MessageBatch, delivery: Delivery) -> None:
    """Deliver messages that have bookmarks of their own.

    A delivery that does not frame them directly gets them one by one.
    """
    if isinstance(delivery, DirectDelivery):
        delivery.deliver_batch(batch)
        return
    for position, body in enumerate(batch.bodies):
        delivery.deliver((body,), batch.envelope(position))
