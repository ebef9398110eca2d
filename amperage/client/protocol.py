"""The client's side of one connection, without I/O.

    commands ---> [ ClientProtocol ] ---> output      (bytes for the socket)
    messages <--- [                ] <--- receive()   (bytes from the socket)

A shell calls a command method, writes `output` to its socket, and passes the received bytes to
`receive`. It gets the results by polling:

- a command that is answered returns a `PendingRequest`, which is `done` when each acknowledgement
  that it waits for has arrived, or a refusal;
- a subscription or query also has a `StreamInbox`, which buffers its messages until they are taken.

Acknowledgements are matched to requests by command id; those of publishes with a sequence number
may be conflated and are matched by that number. Messages are matched to inboxes by subscription or
query id. A generated subscription id is the command's id, so that one table of inboxes serves both.

The command methods are in `amperage.client.command_methods`; this module executes them.

An object lives as long as one connection; `amperage.client.recovery` has a protocol that survives
reconnections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from amperage.client.blocks import block_of_publications, block_of_records
from amperage.client.commands import AckType, encoded, stream_ack_types
from amperage.client.errors import (
    ClientError,
    CommandError,
    ConnectionLostError,
    NotConnectedError,
    ProtocolError,
    SlowStreamError,
    command_error,
    copy_error,
)
from amperage.client.message import Message, split_batch
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.publish_commands import PublishCommands
from amperage.client.queue_acks import effective_backlog
from amperage.client.sequence_numbers import PublishSequence, numbers_in
from amperage.client.uri import AMPS
from amperage.wire.frame_batches import FrameBatch, FrameBatchReader
from amperage.wire.framing import Frame, FrameError, FrameReader, frame
from amperage.wire.header import Header, HeaderError, decode_frame, encode_header

_DUE_NOW: Final = 0.0
"""A time in the past, for acknowledgements that are due at the next check."""

_HTTP: Final = b"HTTP"
"""The first bytes of an HTTP response."""

_ACK: Final = b'{"c":"ack"'
"""How the header of an ack begins."""

_BEAT: Final = frame(encode_header(Header(command="heartbeat", short_options="beat")))


class ClientProtocol(PublishCommands):
    """Encodes commands to bytes, and decodes bytes to messages and acknowledgements.

    Args:
        numbering: numbers the published messages; None publishes without requesting answers.
        wire_protocol: the protocol into which a channel translates, see `amperage.client.channels`.
            The legacy ones lack a field.

    Attributes:
        output: the output buffer; the shell removes the bytes that it has written.
    """

    def __init__(self, numbering: PublishSequence | None = None, wire_protocol: str = AMPS) -> None:
        super().__init__(numbering)
        self._wire_protocol = wire_protocol
        self.output = bytearray()
        self._reader = self._make_reader()
        self._first_bytes = b""  # the first bytes received
        self._requests: dict[str, PendingRequest] = {}
        self._requests_by_sequence: dict[int, PendingRequest] = {}
        self._inboxes: dict[str, StreamInbox] = {}
        self._last_id = 0
        self._close_error: ClientError | None = None
        self._has_logged_on = False
        self._has_blocks = False  # whether any inbox takes blocks
        self._last_refusal: CommandError | None = None  # of a command without a waiting caller

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._close_error is not None

    @property
    def has_waiting_requests(self) -> bool:
        """Whether any command waits for its answer."""
        return any(not request.is_done for request in self._requests.values())

    @property
    def has_inboxes(self) -> bool:
        """Whether any subscription or query is open."""
        return bool(self._inboxes)

    @property
    def inbox_count(self) -> int:
        """The number of subscriptions and queries that are open."""
        return len(self._inboxes)

    @property
    def has_logged_on(self) -> bool:
        """Whether the server has accepted a logon."""
        return self._has_logged_on

    @property
    def queued_messages(self) -> int:
        """The number of messages that wait to be taken, in all inboxes."""
        return sum(inbox.message_count for inbox in self._inboxes.values())

    def end_slow_streams(self) -> None:
        """End each subscription with more waiting messages than it may have."""
        for inbox in [inbox for inbox in self._inboxes.values() if inbox.is_too_slow]:
            last = inbox.messages[-1].bookmark if inbox.messages else None
            resume_hint = f"; the last one has the bookmark {last}" if last else ""
            error = SlowStreamError(
                f"the subscription {inbox.id} has ended: more than {inbox.max_waiting} messages"
                f" (max_waiting) waited to be taken{resume_hint}"
            )
            self._close_inbox(inbox.id, error)
            self._send(
                Header(command="unsubscribe", sub_id=inbox.id, query_id=inbox.id),
                awaited=("processed",),
            )

    def deliver_as_blocks(self, request: PendingRequest) -> PendingRequest:
        """Deliver the messages of a command as blocks. Call this at once after the command.

        Args:
            request: a query, or a subscription to a topic that is not a queue.
        """
        if request.inbox is not None:
            request.inbox.use_blocks()
            self._has_blocks = True
        return request

    # Heartbeats

    def send_heartbeat(self) -> None:
        """Send a heartbeat."""
        self.output += _BEAT

    # Receiving bytes

    def receive(self, data: bytes) -> None:
        """Process bytes received from the socket.

        Args:
            data: the bytes; they need not end at the end of a frame.

        Raises:
            ProtocolError: the bytes are not of the amps protocol. This object is closed with the
                error.
        """
        if len(self._first_bytes) < len(_HTTP):
            self._first_bytes += data[: len(_HTTP) - len(self._first_bytes)]
        try:
            frames = self._split_frames(data)
            if self._has_blocks:
                self._process_frames_as_blocks(frames)
            else:
                for parts in frames:
                    self._process_frame(parts)
            if self._reader.error is not None:
                raise self._reader.error
        except (FrameError, HeaderError) as error:
            problem = ProtocolError(self._describe_bad_input(error))
            self.close(problem)
            raise problem from None
        except ProtocolError as error:
            self.close(error)
            raise

    def connection_lost_error(self, cause: str) -> ConnectionLostError:
        """Return the error for a connection that the client did not close.

        Args:
            cause: the cause that the shell observed.

        Returns:
            An error that also has the server's last refusal, or the client's probable mistake.
        """
        if self._last_refusal is not None:
            return ConnectionLostError(f"{cause}, after it had refused {self._last_refusal}")
        has_asked = bool(self._templates) or (
            self._last_id > 0 and not self._is_awaiting_answer("logon")
        )
        if has_asked and not self._has_logged_on:
            return ConnectionLostError(
                f"{cause}; the client had not logged on before its first command:"
                " call logon() after connect()"
            )
        if self._is_awaiting_answer("logon") and not self._first_bytes:
            return ConnectionLostError(
                f"{cause} without an answer to the logon; the transport may be of another type than"
                " that of the URI (tcp, ws): the server's log has the reason"
            )
        return ConnectionLostError(cause)

    def close(self, error: ClientError | None = None) -> None:
        """Close the protocol, and pass the error to all requests and inboxes that wait.

        Args:
            error: the reason; None if the client closes the connection: streams then end without
                an error.
        """
        if self._close_error is not None:
            return
        self._close_error = error or NotConnectedError(
            "the client is closed; connect() would open it again"
        )
        self.output.clear()
        for request in self._requests.values():
            if not request.is_done:
                request.error = self._close_error
        for inbox in self._inboxes.values():
            inbox.end(error)
        self.deliveries.report_all(self._close_error)
        self._requests.clear()
        self._requests_by_sequence.clear()
        self._inboxes.clear()
        self._ack_batches.take_batches()

    def _describe_bad_input(self, error: Exception) -> str:
        if self._first_bytes == _HTTP:
            return (
                "the server answers in HTTP: the port is that of the admin interface, or of a"
                " transport for websockets, which takes a URI with ws:// or wss://"
            )
        return f"the server sent no message of the amps protocol: {error}"

    # Sending commands

    def _check_open(self) -> None:
        if self._close_error is not None:
            raise copy_error(self._close_error)

    def _check_numbering_ready(self) -> None:
        """Raise an error before the logon, whose answer has the last number the server knows."""
        if not self._has_logged_on:
            raise NotConnectedError(
                "not logged on: call logon() before publishing, so that messages can be numbered"
            )

    def _is_awaiting_answer(self, command: str) -> bool:
        return any(it.command == command and not it.is_done for it in self._requests.values())

    def _next_id(self) -> str:
        while True:
            self._last_id += 1
            command_id = str(self._last_id)
            if command_id not in self._inboxes:
                return command_id

    def _send(
        self,
        header: Header,
        body: bytes = b"",
        *,
        awaited: tuple[str, ...],
        delivered_acks: Iterable[str] = (),
        handled_acks: Iterable[AckType] = (),
        inbox: StreamInbox | None = None,
    ) -> PendingRequest:
        self._check_open()
        command_id = header.command_id = header.command_id or self._next_id()
        expected = dict.fromkeys((*awaited, *delivered_acks))
        header.acks = ",".join(dict.fromkeys((*expected, *handled_acks)))
        encoded(header)  # raises for an invalid header, before the request is stored
        request = PendingRequest(
            header,
            body,
            command_id,
            awaited_acks=frozenset(awaited),
            expected_acks=frozenset(expected),
            inbox=inbox,
        )
        self._requests[command_id] = request
        if request.sequence is not None:
            self._requests_by_sequence[request.sequence] = request
        self._emit(header, body)
        return request

    def _emit(self, header: Header, body: bytes = b"") -> None:
        self.output += frame(encoded(header), body)

    def _emit_messages(self, frames: bytes) -> None:
        self.output += frames

    def _publish_confirmed(self, header: Header, body: bytes, ack: str) -> PendingRequest:
        if self.numbering is None:
            self.traffic.messages_published += 1
            return self._send(header, body, awaited=(ack,))
        self._check_numbering_ready()
        command_id = header.command_id = self._next_id()
        header.acks = ack
        message = self.numbering.add_with_header(header, body)
        awaited = frozenset((ack,))
        request = PendingRequest(
            header, body, command_id, awaited_acks=awaited, expected_acks=awaited
        )
        self._requests[command_id] = self._requests_by_sequence[message.sequence] = request
        self.traffic.messages_published += 1
        self._emit_messages(frame(message.header, message.body))
        return request

    def _open_inbox(
        self,
        header: Header,
        delivered_acks: Iterable[AckType] | None,
        handled_acks: Iterable[AckType] = (),
    ) -> PendingRequest:
        """Send a command with an inbox: a new one, or the existing one of the command's id.

        Args:
            header: the command.
            delivered_acks: the acknowledgements that the caller receives between the messages.
            handled_acks: the acknowledgements that the protocol itself needs.
        """
        if header.order_by is not None and self._wire_protocol != AMPS:
            raise ValueError(f"order_by: the protocol {self._wire_protocol} has no field for it")
        header.command_id = self._next_id()
        inbox_id = header.sub_id or header.command_id
        if header.command != "sow":
            header.sub_id = inbox_id
        if header.command.startswith("sow"):
            header.query_id = inbox_id
        inbox = self._inboxes.get(inbox_id) or StreamInbox(inbox_id)
        request = self._send(
            header,
            awaited=("processed",),
            delivered_acks=stream_ack_types(header.command, delivered_acks),
            handled_acks=handled_acks,
            inbox=inbox,
        )
        if request.opens_inbox:
            inbox.opening_request = request
            self._inboxes[inbox_id] = inbox
        return request

    # Receiving frames

    def _make_reader(self) -> FrameReader:
        """Return a frame reader.

        With numbering, the server may acknowledge each message; such acknowledgements differ only
        by the number, and are read in batches.
        """
        return FrameReader() if self.numbering is None else FrameBatchReader()

    def _split_frames(self, data: bytes) -> list[Frame]:
        reader = self._reader
        frames: list[Frame] = []
        while True:
            frames_after_batch = reader.feed(data)
            if (batch := reader.take_batch()) is not None:
                frames += _without_superseded_acks(batch)
            frames += frames_after_batch
            if isinstance(reader, FrameBatchReader) and frames_after_batch:
                reader.learn(frames_after_batch[-1][0], _ACK)
            if not reader.has_more:
                return frames
            data = b""

    def _process_frames_as_blocks(self, frames: list[Frame]) -> None:
        """Process frames; deliver publications in blocks to the inboxes that take blocks."""
        index = 0
        while index < len(frames):
            publications = block_of_publications(frames, index)
            if publications is None:
                self._process_frame(frames[index])
                index += 1
                continue
            ids, block = publications
            inbox = self._inboxes.get(ids)
            if inbox is not None and inbox.blocks is not None:
                inbox.blocks.append(block)
                self.traffic.messages_received += len(block)
            else:
                for parts in frames[index : index + len(block)]:
                    self._process_frame(parts)
            index += len(block)

    def _process_frame(self, parts: Frame) -> None:
        header, body = decode_frame(*parts)
        command = header.command
        if command in ("p", "publish"):
            header.command = "publish"
            self.traffic.messages_received += 1
            self._deliver(header.sids or header.sub_id, Message(header, body))
        elif command == "ack":
            self._process_ack(header)
        elif command == "sow":
            self._deliver_records(header, body)
        elif command == "oof":
            self.traffic.messages_received += 1
            self._deliver(header.sids or header.sub_id or header.query_id, Message(header, body))
        elif command in ("group_begin", "group_end"):
            self._process_group_mark(header)
        elif command == "heartbeat":
            self.send_heartbeat()

    def _deliver_records(self, header: Header, content: bytes) -> None:
        inbox = self._inboxes.get(header.query_id or "")
        if inbox is None:
            return
        if inbox.blocks is not None:
            block = block_of_records(header, content)
            inbox.blocks.append(block)
            self.traffic.messages_received += len(block)
        else:
            records = list(split_batch(header, content))
            inbox.messages.extend(records)
            self.traffic.messages_received += len(records)

    def _deliver(self, ids: str | None, message: Message) -> None:
        """Put a message into each inbox named by `ids`; ignore inboxes that have ended."""
        if ids is None:
            return
        inbox = self._inboxes.get(ids)
        if inbox is not None:
            self._put_message(inbox, message)
            return
        for inbox_id in ids.split(","):
            inbox = self._inboxes.get(inbox_id)
            if inbox is not None:
                self._put_message(inbox, message)

    def _put_message(self, inbox: StreamInbox, message: Message) -> None:
        """Put a message into an inbox, unless a queue redelivers it after it was acknowledged.

        The acknowledgement of such a message is sent again.
        """
        if message.header.lease_period is not None:
            redelivery = inbox.redelivery
            if redelivery.is_settled(message):
                self._send_outcome(inbox, message, redelivery.outcome_of(message), _DUE_NOW)
                return
            redelivery.record_copy(message)
        inbox.append_message(message)

    def _process_group_mark(self, header: Header) -> None:
        """Process the mark before or after a query's records.

        The second mark completes a query without a subscription. With one, marks are messages.
        """
        inbox = self._inboxes.get(header.query_id or "")
        if inbox is None or inbox.opening_request is None:
            return
        if inbox.opening_request.command != "sow":
            inbox.append_message(Message(header, b""))
        elif header.command == "group_end":
            inbox.opening_request.end_group()
            self._remove_if_complete(inbox.opening_request)

    def _process_ack(self, header: Header) -> None:
        if header.command_id is None:
            sub_id = header.sub_id
            if sub_id is not None and header.status == "failure":  # the server has ended it
                error = command_error("subscribe", header.reason, header.detail)
                self._close_inbox(sub_id, error)
            else:
                self._process_conflated_ack(header)
            return
        request = self._requests.get(header.command_id)
        ack_type = header.acks or ""
        if request is None or (ack_type == "persisted" and header.status != "failure"):
            self._process_unawaited_ack(header)
        if request is None:
            return
        if header.status == "failure":
            self._fail_request(request, header)
            return
        request.acks[ack_type] = header
        if header.reason is not None and request.command == "flush":
            first = command_error("publish", header.reason, header.detail)
            self.refusals.add(header.matches or 1, first)
        if ack_type == "processed" and request.inbox is not None:
            request.inbox.backlog = effective_backlog(header.options) or request.inbox.backlog
        if request.command == "logon" and header.status != "retry":
            self._process_logon_ack(header)
        if request.inbox is not None and request.is_delivered_ack(ack_type):
            request.inbox.messages.append(Message(header, b""))
        self._remove_if_complete(request)

    def _process_conflated_ack(self, header: Header) -> None:
        """Process an acknowledgement by sequence number.

        A success covers all messages up to the number, a failure only the one with the number.
        """
        request = self._requests_by_sequence.get(header.sequence or -1)
        if header.status == "failure" and request is not None:
            self._fail_request(request, header)
            return
        self._process_unawaited_ack(header)
        if header.status == "failure" or header.sequence is None:
            return
        for number_ in [
            number_ for number_ in self._requests_by_sequence if number_ <= header.sequence
        ]:
            request = self._requests_by_sequence[number_]
            request.acks[header.acks or ""] = header
            self._remove_if_complete(request)

    def _process_unawaited_ack(self, ack: Header) -> None:
        """Process an acknowledgement without a waiting caller."""
        key = ack.command_id or ack.sequence
        if ack.status == "failure":
            error = command_error("a command", ack.reason, ack.detail)
            self._last_refusal = error
            is_stored = ack.reason == "duplicate" and self.numbering is not None
            is_reported = self.deliveries.report(
                key, None if is_stored else command_error("publish", ack.reason, ack.detail)
            )
            if ack.sequence is not None and self.numbering is not None:
                self.numbering.process_refusal(ack.sequence, ack, is_awaited=is_reported)
        elif ack.acks == "persisted":
            if ack.command_id is not None:
                self.deliveries.report(key, None)
            if ack.sequence is not None:
                self._process_persisted(ack, ack.sequence)

    def _process_persisted(self, ack: Header, sequence: int) -> None:
        """Record that all messages up to a number are persisted, and therefore processed."""
        if self.numbering is not None:
            self.numbering.store.persisted(sequence)
            for number_ in [
                number_ for number_ in self._requests_by_sequence if number_ <= sequence
            ]:
                request = self._requests_by_sequence[number_]
                request.succeed(ack)
                self._remove_if_complete(request)
        self.deliveries.report_stored(sequence)

    def _process_logon_ack(self, answer: Header) -> None:
        self._has_logged_on = True
        self.traffic.sessions += 1
        if self.numbering is not None:
            self.numbering.store.logged_on(*numbers_in(answer))

    def _fail_request(self, request: PendingRequest, header: Header) -> None:
        if request.sequence is not None and self.numbering is not None:
            self.numbering.process_refusal(request.sequence, header, is_awaited=True)
        request.error = command_error(request.command_name, header.reason, header.detail)
        # A refused change of a subscription leaves the subscription as it was.
        if request.inbox is not None and request.opens_inbox:
            self._close_inbox(request.inbox.id, request.error)
        self._remove_if_complete(request)

    def _remove_if_complete(self, request: PendingRequest) -> None:
        """Remove a request that is complete; a subscription's stays as long as its inbox."""
        if not request.is_complete:
            return
        if request.command == "sow":
            self._close_inbox(request.command_id)
        elif request.inbox is None or request.inbox.is_ended:
            self._requests.pop(request.command_id, None)
        if request.sequence is not None:
            self._requests_by_sequence.pop(request.sequence, None)

    def _close_inboxes(self, inbox_id: str) -> None:
        for ended in list(self._inboxes) if inbox_id == "all" else [inbox_id]:
            self._close_inbox(ended)

    def _close_inbox(self, inbox_id: str, error: ClientError | None = None) -> None:
        inbox = self._inboxes.pop(inbox_id, None)
        if inbox is None:
            return
        inbox.end(error)
        finished = [key for key, it in self._requests.items() if it.inbox is inbox and it.is_done]
        for command_id in finished:
            del self._requests[command_id]


def _without_superseded_acks(batch: FrameBatch) -> list[Frame]:
    """Return the frames of a batch; of acks that can be conflated, only the last."""
    frames = list(batch.frames())
    if batch.values.sequences and isinstance(batch.keys, int):
        ack = decode_frame(*frames[-1])[0]
        is_conflatable = ack.command_id is None and ack.acks == "persisted"
        if ack.command == "ack" and is_conflatable and ack.status == "success":
            return frames[-1:]
    return frames
