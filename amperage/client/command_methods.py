"""The commands of the client's protocol: checks the callers' arguments and builds the headers.

A command is queued only after all its arguments have been checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Unpack

from amperage.client.arguments import (
    MessageBody,
    all_bodies,
    body_bytes,
    check_interval,
    number,
    required_text,
    seconds,
    text,
)
from amperage.client.commands import (
    AckType,
    DeleteFields,
    PublishFields,
    QueryAndSubscribeFields,
    QueryFields,
    SubscribeFields,
    acknowledge_header,
    delete_header,
    publish_ack,
    publish_header,
    query_header,
    subscribe_header,
    with_fields,
)
from amperage.client.deliveries import AsyncDeliveryListener
from amperage.client.handler_calls import HandlerCalls
from amperage.client.limits import MAX_BODY_SIZE
from amperage.client.message import Message
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.queue_acks import DEFAULT_DELAY, AckBatches, AckRules
from amperage.client.sequence_numbers import PublishSequence, RefusalCount
from amperage.client.version import installed_version
from amperage.wire.header import Header

_NAME: Final = "amperage"


@cache
def _version() -> str:
    """Return the client's name and version for the server."""
    return f"{f'{_NAME} {installed_version()}'.rstrip()}:python"


class Commands(ABC):
    """The commands that a client can send to a server.

    Args:
        numbering: numbers the published messages; None publishes without requesting answers.

    Attributes:
        refusals: the refused messages that `flush` raises an error for.
        handler_calls: pending calls of the application's handlers, which the shell makes.
    """

    def __init__(self, numbering: PublishSequence | None) -> None:
        self.numbering = numbering
        self.refusals = RefusalCount() if numbering is None else numbering.refusals
        self.handler_calls = HandlerCalls() if numbering is None else numbering.handler_calls
        self._ack_batches = AckBatches()

    @abstractmethod
    def _check_open(self) -> None:
        """Raise the reason if the connection is closed."""

    @abstractmethod
    def _send(
        self, header: Header, body: bytes = b"", *, awaited: tuple[str, ...]
    ) -> PendingRequest:
        """Send a command that is answered, when all the awaited acknowledgements have arrived."""

    @abstractmethod
    def _open_inbox(
        self, header: Header, delivered_acks: Iterable[AckType] | None
    ) -> PendingRequest:
        """Send a command that opens an inbox.

        Acknowledgements of the types in `delivered_acks` are put into it between the messages.
        """

    @abstractmethod
    def _emit(self, header: Header, body: bytes = b"") -> None:
        """Send a command that is not answered."""

    @abstractmethod
    def _publish_plain(self, topic: str, body: bytes, delta: bool) -> None:
        """Publish a message without options."""

    @abstractmethod
    def _publish_all(self, topic: str, bodies: list[bytes], delta: bool) -> None:
        """Publish messages without options."""

    @abstractmethod
    def _plain_header_start(self, topic: str, delta: bool) -> bytes:
        """Return the header of a publish without options, without its closing brace."""

    @abstractmethod
    def _publish_with_headers(self, starts: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Publish messages, with headers that lack only the closing brace."""

    @abstractmethod
    def _publish(self, header: Header, body: bytes) -> None:
        """Publish a message."""

    @abstractmethod
    def _publish_reported(
        self, header: Header, body: bytes, on_delivery: AsyncDeliveryListener
    ) -> None:
        """Publish a message, and call `on_delivery` with its outcome."""

    @abstractmethod
    def _publish_confirmed(self, header: Header, body: bytes, ack: str) -> PendingRequest:
        """Publish a message and request an acknowledgement."""

    @abstractmethod
    def _close_inboxes(self, inbox_id: str) -> None:
        """End the inbox with an id, or "all" of them."""

    def logon(
        self,
        client_name: str,
        user: str | None,
        password: str | None,
        message_type: str | None,
        *,
        correlation_id: str | None = None,
        options: str | None = None,
    ) -> PendingRequest:
        """Open the session. The server accepts one successful logon per connection."""
        header = Header(
            command="logon",
            client_name=required_text("name", client_name),
            user_id=text("user", user),
            password=text("password", password),
            message_type=message_type,
            long_version=_version(),
            correlation_id=text("correlation_id", correlation_id),
            short_options=text("options", options),
        )
        return self._send(header, awaited=("processed",))

    def publish(
        self,
        topic: str,
        body: MessageBody,
        *,
        delta: bool = False,
        correlation_id: str | None = None,
        expiration: int | None = None,
        sow_key: str | None = None,
        sequence: int | None = None,
        on_delivery: AsyncDeliveryListener | None = None,
    ) -> None:
        """Publish a message.

        Raises:
            ValueError: a sequence number is given, but the publish store assigns them.
        """
        self._check_open()
        data = body if type(body) is bytes and len(body) <= MAX_BODY_SIZE else body_bytes(body)
        has_no_fields = (
            correlation_id is None and expiration is None and sow_key is None and sequence is None
        )
        if has_no_fields and on_delivery is None:
            self._publish_plain(topic, data, delta)
            return
        header = publish_header(
            topic,
            delta=delta,
            correlation_id=correlation_id,
            expiration=expiration,
            sow_key=sow_key,
            sequence=sequence,
        )
        if on_delivery is None:
            self._publish(header, data)
        else:
            self._publish_reported(header, data, on_delivery)

    def publish_all(
        self,
        topic: str,
        bodies: Iterable[MessageBody],
        *,
        delta: bool = False,
        on_delivery: AsyncDeliveryListener | None = None,
    ) -> None:
        """Publish many messages to one topic: all of them, or none if one is invalid."""
        self._check_open()
        encoded_bodies = [
            body if type(body) is bytes and len(body) <= MAX_BODY_SIZE else body_bytes(body)
            for body in all_bodies(bodies)
        ]
        if on_delivery is None:
            self._publish_all(topic, encoded_bodies, delta)
            return
        for body in encoded_bodies:
            self._publish_reported(publish_header(topic, delta=delta), body, on_delivery)

    def publish_columns(
        self,
        topics: Sequence[str],
        bodies: Sequence[bytes],
        fields: Mapping[str, Sequence[str | int | None]],
        *,
        delta: bool = False,
    ) -> None:
        """Publish many messages with individual headers: all, or none if one is invalid."""
        self._check_open()
        for body in bodies:
            body_bytes(body)
        starts = with_fields([self._plain_header_start(topic, delta) for topic in topics], fields)
        self._publish_with_headers(starts, bodies)

    def confirmed_publish(
        self,
        topic: str,
        body: MessageBody,
        ack: AckType,
        *,
        delta: bool = False,
        **fields: Unpack[PublishFields],
    ) -> PendingRequest:
        """Publish a message and request an acknowledgement."""
        self._check_open()
        data = body_bytes(body)
        header = publish_header(topic, delta=delta, **fields)
        return self._publish_confirmed(header, data, publish_ack(ack))

    def subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        acks: Iterable[AckType] | None = None,
        auto_ack: bool = False,
        ack_batch: int | None = None,
        ack_delay: float = DEFAULT_DELAY,
        **fields: Unpack[SubscribeFields],
    ) -> PendingRequest:
        """Create a subscription, or change the one with the same id."""
        header = subscribe_header(topic, delta=delta, **fields)
        if number("ack_batch", ack_batch) == 0:
            raise ValueError("ack_batch: expected 1 or more, not 0")
        rules = AckRules(bool(auto_ack), ack_batch, seconds("ack_delay", ack_delay))
        request = self._open_inbox(header, acks)
        if request.inbox is not None:
            request.inbox.ack_rules = rules
        return request

    def sow(
        self,
        topic: str,
        *,
        acks: Iterable[AckType] | None = None,
        **fields: Unpack[QueryFields],
    ) -> PendingRequest:
        """Query a SOW topic. The inbox ends with the last record."""
        return self._open_inbox(query_header("sow", topic, **fields), acks)

    def sow_and_subscribe(
        self,
        topic: str,
        *,
        delta: bool = False,
        acks: Iterable[AckType] | None = None,
        **fields: Unpack[QueryAndSubscribeFields],
    ) -> PendingRequest:
        """Query a SOW topic and subscribe to it, with no gap between."""
        command = "sow_and_delta_subscribe" if delta else "sow_and_subscribe"
        return self._open_inbox(query_header(command, topic, **fields), acks)

    def sow_delete(
        self,
        topic: str,
        *,
        body: MessageBody | None = None,
        persisted: bool = False,
        **fields: Unpack[DeleteFields],
    ) -> PendingRequest:
        """Delete records. The `stats` acknowledgement has their number."""
        if fields.get("sequence") is not None and self.numbering is not None:
            raise ValueError("the publish store assigns sequence numbers; leave out sequence")
        header = delete_header(topic, has_body=body is not None, **fields)
        data = b"" if body is None else body_bytes(body)
        awaited: tuple[AckType, ...] = ("processed", "stats")
        if persisted:
            awaited = (*awaited, "persisted")
        return self._send(header, data, awaited=awaited)

    def acknowledge(self, topic: str, bookmarks: Iterable[str], options: str | None = None) -> None:
        """Acknowledge queue messages (or `cancel` or `expire` them), without an answer."""
        self._check_open()
        self._emit(acknowledge_header(topic, bookmarks, options))

    def confirmed_acknowledge(
        self, topic: str, bookmarks: Iterable[str], options: str | None = None
    ) -> PendingRequest:
        """Acknowledge queue messages (or `cancel` or `expire` them), and request an answer."""
        return self._send(acknowledge_header(topic, bookmarks, options), awaited=("processed",))

    def settle_message(
        self, inbox: StreamInbox, message: Message, options: str | None, now: float
    ) -> None:
        """Report the outcome of a queue message.

        An acknowledgement is sent with the next batch, any other outcome at once.

        Args:
            inbox: the inbox of the message.
            message: the message.
            options: the options field, such as "cancel", "expire" or "extend"; None acknowledges
                the message.
            now: the time on the caller's monotonic clock, in seconds.
        """
        self._check_open()
        if message.header.lease_period is not None:
            if inbox.redelivery.is_settled(message):
                return
            inbox.redelivery.record_outcome(message, options)
        self._send_outcome(inbox, message, options, now)

    def _send_outcome(
        self, inbox: StreamInbox, message: Message, options: str | None, now: float
    ) -> None:
        bookmark = message.bookmark or ""
        if options is not None:
            self._emit(acknowledge_header(message.topic, [bookmark], options))
            return
        rules = inbox.ack_rules
        collected = self._ack_batches.add(message.topic, bookmark, now + rules.delay)
        if collected >= rules.batch_for(inbox.backlog or 1):
            self.send_acks()

    @property
    def acks_due(self) -> float | None:
        """The latest time to call `send_acks`, in seconds; None if there is nothing to send."""
        return self._ack_batches.due

    def send_acks(self) -> None:
        """Send the batched acknowledgements of queue messages."""
        for topic, bookmarks in self._ack_batches.take_batches():
            self._emit(acknowledge_header(topic, bookmarks, None))

    def unsubscribe(self, inbox_id: str) -> PendingRequest:
        """End the subscription or query with an id, or "all" of them. Inboxes end at once."""
        required_text("stream_id", inbox_id)
        self.send_acks()
        request = self._send(
            Header(command="unsubscribe", sub_id=inbox_id, query_id=inbox_id),
            awaited=("processed",),
        )
        self._close_inboxes(inbox_id)
        return request

    def flush(self) -> PendingRequest:
        """Request an answer for when earlier commands are processed and publishes are stored.

        The server acknowledges and refuses numbered publishes one by one; for publishes without a
        number, the answer to this command reports refusals.
        """
        self.send_acks()
        if self.numbering is not None:
            return self._send(Header(command="flush"), awaited=("completed",))
        return self._send(
            Header(command="flush", short_options="refusals"), awaited=("completed", "persisted")
        )

    def flush_acks(self) -> PendingRequest:
        """Request an answer for when all acknowledgements of queue messages are stored durably."""
        self.send_acks()
        return self._send(Header(command="flush"), awaited=("persisted",))

    def heartbeat(self, interval: int) -> PendingRequest:
        """Start to exchange heartbeats every `interval` seconds; ours answer the server's."""
        check_interval("interval", interval)
        return self._send(
            Header(command="heartbeat", short_options=f"start,{interval}"), awaited=("processed",)
        )
