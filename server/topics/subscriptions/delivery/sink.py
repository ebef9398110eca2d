"""Messages for clients inside the server.

Such a client has a sink in place of a connection: its messages pass the same filters, select lists
and conflation as those of other clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.presentation import Presentation
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.util.counters import TrafficCounter


class MessageSink(Protocol):
    """Processes the messages of a subscription."""

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:
        """Process a message of a topic without records.

        Args:
            topic: the topic's name.
            body: the body.
            envelope: the origin of the message.
        """

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Process a message about a record.

        Args:
            topic: the topic's name.
            body: its new state, or a delta.
            message: the change of the record.
        """

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Process the `oof` of a record, for a subscription that tracks focus.

        Args:
            topic: the topic's name.
            body: its new state; for a removed record, the last one.
            message: the change of the record.
        """


class ChangeSink(MessageSink):
    """A sink whose subscription gets the state of each record before a change.

    `RecordMessage.previous_record` has it. Topics then announce records one by one, since the state
    before is read for each.
    """


class SinkDelivery:
    """Passes messages of a topic without records to a sink.

    Args:
        sink: takes the messages.
        topic: the topic's name.
        presentation: the form of the messages.
        counter: counts the messages.
    """

    __slots__ = ("_counter", "_presentation", "_sink", "_topic")

    def __init__(
        self, sink: MessageSink, topic: str, presentation: Presentation, counter: TrafficCounter
    ) -> None:
        self._counter = counter
        self._sink = sink
        self._topic = topic
        self._presentation = presentation

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Pass messages to the sink."""
        self._counter.add(len(bodies), sum(map(len, bodies)))
        for body in self._presentation.present_bodies(bodies):
            self._sink.on_message(self._topic, body, envelope)


class SinkFramer:
    """Passes messages about records to a sink.

    Args:
        sink: takes the messages.
        topic: the topic's name.
        presentation: the form of the messages.
        is_oof: whether the messages are `oof` messages.
    """

    __slots__ = ("_pass_message", "_topic", "presentation")

    def __init__(
        self, sink: MessageSink, topic: str, presentation: Presentation, *, is_oof: bool
    ) -> None:
        self._pass_message = sink.on_oof if is_oof else sink.on_record
        self._topic = topic
        self.presentation = presentation

    def write(
        self,
        message: RecordMessage,
        body: bytes,
        received_envelope: Envelope | None = None,  # noqa: ARG002 - see `RecordFramer.write`
    ) -> None:
        """Pass a message to the sink."""
        self._pass_message(self._topic, self.presentation.format_body(body), message)
