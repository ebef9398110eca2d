"""The client's side of one connection, without I/O.

    commands ---> [ ClientProtocol ] ---> output      (bytes for the socket)
    messages <--- [                ] <--- receive()   (bytes from the socket)

A shell calls a command method, writes `output` to its socket, and feeds what it reads to
`receive`. It learns what happened by looking:

- a command that is answered returns a `Request`, which is `done` when each acknowledgement that
  it waits for has come, or a refusal;
- a subscription or query also has an `Inbox`, where its messages collect until they are taken.

Acknowledgements find their request by command id; those of publishes with a sequence number may
be conflated and find it by that number. Messages find their inbox by subscription or query id.
A made-up subscription id is the command's id, so that one table of inboxes serves both.

One object lives as long as one connection; `client.recovery` has one that outlives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from client.commands import (
    AckType,
    DeleteOptions,
    LogonOptions,
    PublishOptions,
    QueryAndSubscribeOptions,
    QueryOptions,
    SubscribeOptions,
    joined,
    publish_header,
    query_header,
    subscribe_header,
)
from client.errors import ClientError, ConnectionLostError, ProtocolError, command_error
from client.message import Message, split_batch
from client.pending import Inbox, Request
from server.wire.framing import Frame, FrameError, FrameReader, frame, frame_head
from server.wire.header import Header, HeaderError, decode_frame, encode_header

_VERSION: Final = "amperage:python"
_BEAT: Final = frame(encode_header(Header(command="heartbeat", short_options="beat")))
TEMPLATES_KEPT: Final = 256
"""Headers of plain publishes that are kept prepared, one for each topic."""


class ClientProtocol:
    """Commands to bytes, bytes to messages and acknowledgements.

    Attributes:
        output: bytes that wait to be written; the shell removes what it has written.
    """

    def __init__(self) -> None:
        self.output = bytearray()
        self._reader = FrameReader()
        self._requests: dict[str, Request] = {}
        self._numbered: dict[int, Request] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._templates: dict[tuple[str, str], bytes] = {}
        self._last_id = 0
        self._closed: ClientError | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether some command has not been answered yet."""
        return any(not request.done for request in self._requests.values())

    @property
    def queued(self) -> int:
        """How many messages wait to be taken, in all inboxes."""
        return sum(len(inbox.messages) for inbox in self._inboxes.values())

    # Commands out

    def logon(
        self,
        client_name: str,
        user: str | None,
        password: str | None,
        message_type: str | None,
        **options: Unpack[LogonOptions],
    ) -> Request:
        """Open the session. The server accepts one successful logon a connection."""
        header = Header(
            command="logon",
            client_name=client_name,
            user_id=user,
            password=password,
            message_type=message_type,
            long_version=_VERSION,
            correlation_id=options.get("correlation_id"),
            short_options=options.get("options"),
        )
        return self._send(header, awaited=("processed",))

    def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish without asking for an answer."""
        self._check_open()
        if options:
            header = encode_header(publish_header(publish_command(delta), topic, options))
        else:
            header = self._template(topic, delta)
        self.output += frame_head(header, len(body))
        self.output += body

    def publish_all(self, topic: str, bodies: Iterable[bytes], *, delta: bool = False) -> None:
        """Publish many messages to one topic without asking for an answer."""
        self._check_open()
        header = self._template(topic, delta)
        parts: list[bytes] = []
        append = parts.append
        for body in bodies:
            append(frame_head(header, len(body)))
            append(body)
        self.output += b"".join(parts)

    def confirmed_publish(
        self,
        topic: str,
        body: bytes,
        ack: AckType,
        *,
        delta: bool = False,
        **options: Unpack[PublishOptions],
    ) -> Request:
        """Publish and ask for an acknowledgement."""
        header = publish_header(publish_command(delta), topic, options)
        request = self._send(header, body, awaited=(ack,))
        if request.sequence is not None:
            self._numbered[request.sequence] = request
        return request

    def subscribe(
        self, topic: str, *, delta: bool = False, **options: Unpack[SubscribeOptions]
    ) -> Request:
        """Place a subscription, or change the one that has the same id."""
        header = subscribe_header(topic, delta, options)
        return self._open(header, options.get("acks") or ())

    def sow(self, topic: str, **options: Unpack[QueryOptions]) -> Request:
        """Query a SOW topic. The inbox ends with the last record."""
        return self._open(query_header("sow", topic, options), options.get("acks") or ())

    def sow_and_subscribe(
        self, topic: str, *, delta: bool = False, **options: Unpack[QueryAndSubscribeOptions]
    ) -> Request:
        """Query a SOW topic and subscribe to it, with no gap between."""
        command = "sow_and_delta_subscribe" if delta else "sow_and_subscribe"
        header = query_header(command, topic, options)
        header.sub_id = options.get("sub_id")
        return self._open(header, options.get("acks") or ())

    def sow_delete(self, topic: str, **options: Unpack[DeleteOptions]) -> Request:
        """Delete records; the `stats` acknowledgement says how many."""
        which = (options.get("filter"), options.get("sow_keys"), options.get("body"))
        if sum(value is not None for value in which) != 1:
            raise ValueError("sow_delete takes exactly one of filter, sow_keys and body")
        header = Header(
            command="sow_delete",
            topic=topic,
            short_filter=options.get("filter"),
            sow_keys=joined(options.get("sow_keys")),
            sequence=options.get("sequence"),
        )
        awaited: tuple[AckType, ...] = ("processed", "stats")
        if options.get("persisted"):
            awaited = (*awaited, "persisted")
        request = self._send(header, options.get("body") or b"", awaited=awaited)
        if request.sequence is not None:
            self._numbered[request.sequence] = request
        return request

    def acknowledge(self, topic: str, bookmarks: Iterable[str], options: str | None = None) -> None:
        """Tell a queue that messages are done with (or `cancel`, `expire`), without an answer."""
        self._check_open()
        header = Header(
            command="sow_delete", topic=topic, bookmark=joined(bookmarks), short_options=options
        )
        self._emit(header)

    def unsubscribe(self, inbox_id: str) -> Request:
        """End a subscription or query, or "all" of them. Their inboxes end at once."""
        request = self._send(
            Header(command="unsubscribe", sub_id=inbox_id, query_id=inbox_id),
            awaited=("processed",),
        )
        for ended in list(self._inboxes) if inbox_id == "all" else [inbox_id]:
            self._close_inbox(ended)
        return request

    def flush(self) -> Request:
        """Ask for an answer when every earlier command has been processed."""
        return self._send(Header(command="flush"), awaited=("completed",))

    def heartbeat(self, interval: int) -> Request:
        """Exchange signs of life from now on; ours answer the server's."""
        return self._send(
            Header(command="heartbeat", short_options=f"start,{interval}"), awaited=("processed",)
        )

    # Bytes in

    def receive(self, data: bytes) -> None:
        """Take bytes from the socket.

        Args:
            data: what was read, cut anywhere.

        Raises:
            ProtocolError: they are not the amps protocol. The protocol is closed with that error.
        """
        try:
            for parts in self._reader.feed(data):
                self._take(parts)
            if self._reader.error is not None:
                raise self._reader.error
        except (FrameError, HeaderError) as error:
            problem = ProtocolError(f"the server sent what is no message: {error}")
            self.close(problem)
            raise problem from None
        except ProtocolError as error:
            self.close(error)
            raise

    def close(self, error: ClientError | None = None) -> None:
        """End the connection: whatever still waits gets the error.

        Args:
            error: why. None if the client itself closes: streams then just end.
        """
        if self._closed is not None:
            return
        self._closed = error or ConnectionLostError("the client is closed")
        self.output.clear()
        for request in self._requests.values():
            if not request.done:
                request.error = self._closed
        for inbox in self._inboxes.values():
            inbox.end(error)
        self._requests.clear()
        self._numbered.clear()
        self._inboxes.clear()

    # How a command goes out

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

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
        awaited: tuple[AckType, ...],
        handed_out: Iterable[AckType] = (),
        noted: Iterable[AckType] = (),
        inbox: Inbox | None = None,
    ) -> Request:
        self._check_open()
        command_id = header.command_id = header.command_id or self._next_id()
        expected = dict.fromkeys((*awaited, *handed_out))
        header.acks = ",".join(dict.fromkeys((*expected, *noted)))
        request = Request(
            header,
            body,
            command_id,
            awaited=frozenset(awaited),
            expected=frozenset(expected),
            inbox=inbox,
        )
        self._requests[command_id] = request
        self._emit(header, body)
        return request

    def _emit(self, header: Header, body: bytes = b"") -> None:
        self.output += frame(encode_header(header), body)

    def _open(
        self, header: Header, handed_out: Iterable[AckType], noted: Iterable[AckType] = ()
    ) -> Request:
        """Send a command that has an inbox; the inbox is new, or that of the id it names.

        Args:
            header: the command.
            handed_out: acknowledgements that the caller wants between the messages.
            noted: acknowledgements that the protocol itself wants.
        """
        header.command_id = self._next_id()
        inbox_id = header.sub_id or header.command_id
        if header.command != "sow":
            header.sub_id = inbox_id
        if header.command.startswith("sow"):
            header.query_id = inbox_id
        inbox = self._inboxes.get(inbox_id) or Inbox(inbox_id)
        request = self._send(
            header, awaited=("processed",), handed_out=handed_out, noted=noted, inbox=inbox
        )
        if request.opens_inbox:
            inbox.opened_by = request
            self._inboxes[inbox_id] = inbox
        return request

    def _template(self, topic: str, delta: bool) -> bytes:
        """The header of a plain publish: the same for every message of a topic."""
        command = publish_command(delta)
        template = self._templates.get((command, topic))
        if template is None:
            if len(self._templates) >= TEMPLATES_KEPT:
                self._templates.clear()
            template = encode_header(Header(command=command, topic=topic))
            self._templates[command, topic] = template
        return template

    # How a frame comes in

    def _take(self, parts: Frame) -> None:
        header, body = decode_frame(*parts)
        command = header.command
        if command in ("p", "publish"):
            header.command = "publish"
            self._deliver(header.sids or header.sub_id, Message(header, body))
        elif command == "ack":
            self._take_ack(header)
        elif command == "sow":
            inbox = self._inboxes.get(header.query_id or "")
            if inbox is not None:
                inbox.messages.extend(split_batch(header, body))
        elif command == "oof":
            self._deliver(header.sids or header.sub_id or header.query_id, Message(header, body))
        elif command in ("group_begin", "group_end"):
            self._take_group_mark(header)
        elif command == "heartbeat":
            self.output += _BEAT

    def _deliver(self, ids: str | None, message: Message) -> None:
        """Hand a message to each inbox named; those that have ended meanwhile do not count."""
        if ids is None:
            return
        inbox = self._inboxes.get(ids)
        if inbox is not None:
            inbox.put(message)
            return
        for inbox_id in ids.split(","):
            inbox = self._inboxes.get(inbox_id)
            if inbox is not None:
                inbox.put(message)

    def _take_group_mark(self, header: Header) -> None:
        """A plain query ends with its group; with a subscription, the marks are of interest."""
        inbox = self._inboxes.get(header.query_id or "")
        if inbox is None or inbox.opened_by is None:
            return
        if inbox.opened_by.command != "sow":
            inbox.put(Message(header, b""))
        elif header.command == "group_end":
            inbox.opened_by.group_ended()
            self._settle(inbox.opened_by)

    def _take_ack(self, header: Header) -> None:
        if header.command_id is None:
            self._take_conflated_ack(header)
            return
        request = self._requests.get(header.command_id)
        if request is None:
            return
        ack_type = header.acks or ""
        if header.status == "failure":
            self._fail(request, header)
            return
        request.acks[ack_type] = header
        if request.inbox is not None and request.handed_out(ack_type):
            request.inbox.messages.append(Message(header, b""))
        self._settle(request)

    def _take_conflated_ack(self, header: Header) -> None:
        """An acknowledgement by sequence number: success for all up to it, failure for it alone."""
        last = header.sequence
        if last is None:
            return
        if header.status == "failure":
            request = self._numbered.get(last)
            if request is not None:
                self._fail(request, header)
            return
        for number in [number for number in self._numbered if number <= last]:
            request = self._numbered[number]
            request.acks[header.acks or ""] = header
            self._settle(request)

    def _fail(self, request: Request, header: Header) -> None:
        request.error = command_error(request.command, header.reason, header.detail)
        # A change to a subscription that is refused leaves the subscription as it was.
        if request.inbox is not None and request.opens_inbox:
            self._close_inbox(request.inbox.id, request.error)
        self._settle(request)

    def _settle(self, request: Request) -> None:
        """Forget a request that is complete; a subscription's lives as long as its inbox."""
        if not request.complete:
            return
        if request.command == "sow":
            self._close_inbox(request.command_id)
        elif request.inbox is None or request.inbox.ended:
            self._requests.pop(request.command_id, None)
        if request.sequence is not None:
            self._numbered.pop(request.sequence, None)

    def _close_inbox(self, inbox_id: str, error: ClientError | None = None) -> None:
        inbox = self._inboxes.pop(inbox_id, None)
        if inbox is None:
            return
        inbox.end(error)
        finished = [key for key, it in self._requests.items() if it.inbox is inbox and it.done]
        for command_id in finished:
            del self._requests[command_id]


def publish_command(delta: bool) -> str:
    """The name of a publish command, as short as it may be."""
    return "delta_publish" if delta else "p"
