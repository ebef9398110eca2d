"""Messages for clients inside the server.

They stand where others have their connection: a message takes the same way to them, through the
same filters, select lists and conflation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.base.tally import Tally
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.presentation import Presentation
    from server.subscriptions.record_delivery import RecordMessage


class Sink(Protocol):
    """Takes the messages of a subscription."""

    def take(self, topic: str, body: bytes, envelope: Envelope) -> None:
        """Take a message of a topic without records.

        Args:
            topic: the topic's name.
            body: the message.
            envelope: where it comes from.
        """

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Take a message about a record.

        Args:
            topic: the topic's name.
            body: its new state, or what is different.
            message: what became of the record.
        """

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Take note that a record matches no more, of a subscription that asked for that.

        Args:
            topic: the topic's name.
            body: its new state; of one that is gone, its last.
            message: what became of the record.
        """


class SinkDelivery:
    """Hands messages of a topic without records to a sink.

    Args:
        sink: takes them.
        topic: the topic's name.
        presentation: the form in which they are wanted.
        tally: counts them.
    """

    __slots__ = ("_presentation", "_sink", "_tally", "_topic")

    def __init__(self, sink: Sink, topic: str, presentation: Presentation, tally: Tally) -> None:
        self._tally = tally
        self._sink = sink
        self._topic = topic
        self._presentation = presentation

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Hand messages over."""
        self._tally.add(len(bodies), sum(map(len, bodies)))
        for body in self._presentation.present(bodies):
            self._sink.take(self._topic, body, envelope)


class SinkFramer:
    """Hands messages about records to a sink.

    Args:
        sink: takes them.
        topic: the topic's name.
        presentation: the form in which they are wanted.
        leaves: whether the records match no more.
    """

    __slots__ = ("_take", "_topic", "presentation")

    def __init__(self, sink: Sink, topic: str, presentation: Presentation, *, leaves: bool) -> None:
        self._take = sink.take_leaving if leaves else sink.take_record
        self._topic = topic
        self.presentation = presentation

    def write(self, message: RecordMessage, body: bytes, received: Envelope | None = None) -> None:  # noqa: ARG002 - see `RecordFramer.write`
        """Hand a message over."""
        self._take(self._topic, self.presentation.finish(body), message)
