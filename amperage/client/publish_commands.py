"""The publish commands of a client's protocol: numbers the messages and encodes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat

from amperage.client.command_methods import Commands
from amperage.client.commands import encoded, publish_header
from amperage.client.deliveries import AsyncDeliveryListener, Deliveries
from amperage.client.sequence_numbers import MAX_CACHED_TEMPLATES, PublishSequence
from amperage.client.statistics import TrafficCounters
from amperage.wire.framing import frame, frame_head
from amperage.wire.header import Header


class PublishCommands(Commands):
    """Publishes messages, with or without sequence numbers.

    Args:
        numbering: numbers the messages; None publishes without requesting answers.

    Attributes:
        traffic: the counters of the client's traffic; a client sets its own.
        deliveries: the messages with a requested report.
    """

    def __init__(self, numbering: PublishSequence | None) -> None:
        super().__init__(numbering)
        self.traffic = TrafficCounters()
        self.deliveries = Deliveries(self.handler_calls)
        self._templates: dict[tuple[str, bool], bytes] = {}

    @abstractmethod
    def _check_numbering_ready(self) -> None:
        """Raise an error if messages cannot be numbered yet."""

    @abstractmethod
    def _next_id(self) -> str:
        """Return the id of the next command."""

    @abstractmethod
    def _emit_messages(self, frames: bytes) -> None:
        """Send messages that are published."""

    def _publish_plain(self, topic: str, body: bytes, delta: bool) -> None:
        if self.numbering is None:
            self._emit_messages(frame(self._header_template(topic, delta), body))
        else:
            self._check_numbering_ready()
            message = self.numbering.add_plain(topic, body, delta)
            self._emit_messages(frame(message.header, message.body))
        self.traffic.messages_published += 1

    def _publish_all(self, topic: str, bodies: list[bytes], delta: bool) -> None:
        self._publish_with_headers(
            repeat(self._plain_header_start(topic, delta), len(bodies)), bodies
        )

    def _plain_header_start(self, topic: str, delta: bool) -> bytes:
        if self.numbering is None:
            return self._header_template(topic, delta)[:-1]
        return self.numbering.plain_header_start(topic, delta)

    def _publish_with_headers(self, starts: Iterable[bytes], bodies: Sequence[bytes]) -> None:
        parts: list[bytes] = []
        append = parts.append
        if self.numbering is None:
            for start, body in zip(starts, bodies, strict=True):
                append(frame_head(start + b"}", len(body)))
                append(body)
        else:
            self._check_numbering_ready()
            store = self.numbering.store
            add = store.add
            for start, body in zip(starts, bodies, strict=True):
                message = add(start, body)
                append(frame_head(message.header, len(body)))
                append(body)
            store.commit()
        self._emit_messages(b"".join(parts))
        self.traffic.messages_published += len(bodies)

    def _publish(self, header: Header, body: bytes) -> None:
        if self.numbering is None:
            self._emit_messages(frame(encoded(header), body))
        else:
            self._check_numbering_ready()
            message = self.numbering.add_with_header(header, body)
            self._emit_messages(frame(message.header, message.body))
        self.traffic.messages_published += 1

    def _publish_reported(
        self, header: Header, body: bytes, on_delivery: AsyncDeliveryListener
    ) -> None:
        """Publish a message, and call `on_delivery` with its outcome.

        Without numbering, the acknowledgement has the command's id; if the caller numbers the
        message, it has that number, and may cover earlier ones.
        """
        topic = header.topic or ""
        if self.numbering is not None:
            self._check_numbering_ready()
            message = self.numbering.add_with_header(header, body)
            self.deliveries.add(message.sequence, topic, body, on_delivery)
            self._emit_messages(frame(message.header, body))
        else:
            key: int | str | None = header.sequence
            if key is None:
                key = header.command_id = self._next_id()
            header.acks = "persisted"
            content = encoded(header)
            self.deliveries.add(key, topic, body, on_delivery)
            self._emit_messages(frame(content, body))
        self.traffic.messages_published += 1

    def _header_template(self, topic: str, delta: bool) -> bytes:
        """Return the header of a publish without options: the same for every message of a topic."""
        template = self._templates.get((topic, delta))
        if template is None:
            if len(self._templates) >= MAX_CACHED_TEMPLATES:
                self._templates.clear()
            template = encoded(publish_header(topic, delta=delta))
            self._templates[topic, delta] = template
        return template
