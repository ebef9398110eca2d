"""The websocket framing: commands in websocket messages.

    HTTP request with Upgrade: websocket  ->  101 Switching Protocols
    text or binary message  {"c":"p","t":"orders"}{"id":1,"qty":5}

The peer chooses the content of a message among three forms (amperage/wire/websocket_forms.py).

`WebsocketPeer` is the server side of one connection, without I/O: the opening handshake in two
steps (`take_request`, then `accept` or `refuse`), after it `feed` for input from the peer and
`encode` for output. The rest of the server handles length-prefixed frames only; these are converted
here. The websockets library implements pings, fragments, compression and the closing handshake.
Source: AMPS User Guide, WebSocket Protocol Connections; RFC 6455, RFC 7692.
"""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Final

from websockets import http11
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import CloseCode, Opcode
from websockets.frames import Frame as WebsocketFrame
from websockets.http11 import Request
from websockets.protocol import OPEN, SEND_EOF
from websockets.server import ServerProtocol

from amperage.wire.decompression import (
    MAX_INFLATED_CHUNK_SIZE,
    DeflatedFrame,
    DeflateFactory,
    Inflater,
)
from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, Frame, FrameError
from amperage.wire.websocket_forms import WebsocketForm, WebsocketMessage, WholeForm, choose_form

_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_METHOD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TLS_HANDSHAKE: Final = 0x16
_MAX_REASON_LENGTH: Final = 123  # bytes; RFC 6455, section 5.5
_SLICE: Final = 2048
"""Bytes that are passed to the library at once; it parses all of them in one call."""
MAX_HANDSHAKE_LINE_SIZE: Final = 64 * 1024
"""Maximum bytes of a handshake line: the Kerberos ticket of a user in very many groups."""
MAX_HANDSHAKE_SIZE: Final = 72 * 1024
"""Maximum bytes of all lines of the opening handshake."""
http11.MAX_LINE_LENGTH = (
    MAX_HANDSHAKE_LINE_SIZE  # the library's default: 8 KB, or an environment variable
)

_LONG_REST: Final = 64 * 1024
MAX_MESSAGE_FRAGMENTS: Final = 10_000
"""Maximum fragments of one message."""

# Windows of 4 KB compress messages nearly as well as the largest, with a fifth of the memory.
_DEFLATE: Final = DeflateFactory(
    server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5}
)

_SILENT: Final = logging.getLogger("amperage.websocket")  # the server log has all that matters
_SILENT.disabled = True


class WebsocketPeer:
    """The server's side of one websocket connection.

    Args:
        deflate: whether messages are compressed if the peer offers it.

    Attributes:
        error: the peer's violation of the protocol; None while there is none.
        is_ended: whether the connection is to be closed once all output has been sent.
    """

    __slots__ = (
        "_data_frames",
        "_form",
        "_fragment_count",
        "_fragments",
        "_fragments_are_text",
        "_handshake_bytes",
        "_has_received",
        "_inflater",
        "_protocol",
        "_unread_input",
        "error",
        "is_ended",
    )

    def __init__(self, *, deflate: bool) -> None:
        extensions = [_DEFLATE] if deflate else []
        self._protocol = ServerProtocol(
            extensions=extensions, max_size=MAX_AMPS_FRAME_SIZE, logger=_SILENT
        )
        self._has_received = False
        self._handshake_bytes = 0
        self._form: WebsocketForm | None = None  # set by the peer's first message
        self._unread_input = memoryview(b"")  # input that was not passed to the library yet
        self._data_frames: deque[WebsocketFrame] = deque()  # data frames, the first being inflated
        self._inflater: Inflater | None = None
        self._fragments: bytearray | None = None  # of an incomplete message
        self._fragments_are_text = False
        self._fragment_count = 0
        self.error: FrameError | None = None
        self.is_ended = False

    @property
    def has_partial_frame(self) -> bool:
        """True while a command is incomplete."""
        if self._fragments is not None:
            return True
        return self._form is not None and self._form.has_partial_command

    def take_request(self, data: bytes) -> Request | None:
        """Receive bytes of the opening handshake.

        Returns:
            The request once it is complete, otherwise None.

        Raises:
            FrameError: the bytes are not an HTTP request; the reply is among the output.
        """
        protocol = self._protocol
        if data and not self._has_received:
            self._has_received = True
            if data[0] not in _METHOD:
                raise FrameError(_describe(data))
        self._handshake_bytes += len(data)
        if self._handshake_bytes > MAX_HANDSHAKE_SIZE:
            raise FrameError(f"the opening handshake has more than {MAX_HANDSHAKE_SIZE:,} bytes")
        protocol.receive_data(data)
        events = protocol.events_received()
        if protocol.handshake_exc is not None:
            raise FrameError(str(protocol.handshake_exc))
        if len(events) > 1 or protocol.parser_exc is not None:
            raise FrameError("messages before the end of the opening handshake")
        if not events:
            return None
        (request,) = events
        assert isinstance(request, Request)  # noqa: S101 - the first event always is
        return request

    def accept(self, request: Request, headers: Iterable[tuple[str, str]]) -> None:
        """Accept a request; the connection is open then.

        Args:
            request: the request.
            headers: further headers for the response.

        Raises:
            FrameError: it is not a valid websocket request; the reply is among the output.
        """
        response = self._protocol.accept(request)
        for name, value in headers:
            response.headers[name] = value
        self._protocol.send_response(response)
        if self._protocol.handshake_exc is not None:
            raise FrameError(str(self._protocol.handshake_exc))
        for extension in self._protocol.extensions:
            if isinstance(extension, PerMessageDeflate):
                self._inflater = Inflater(extension)

    def refuse(self, status: int, text: str, headers: Iterable[tuple[str, str]]) -> None:
        """Refuse a request.

        Args:
            status: the HTTP status code.
            text: the reason, for people.
            headers: further headers for the response.
        """
        response = self._protocol.reject(status, text + "\n")
        for name, value in headers:
            response.headers[name] = value
        self._protocol.send_response(response)

    @property
    def has_more(self) -> bool:
        """See `FrameReader.has_more`."""
        return self.error is None and bool(self._unread_input or self._data_frames)

    @property
    def partial_size(self) -> int:
        """Bytes that are buffered of an incomplete command."""
        held = 0 if self._form is None else self._form.partial_size
        return held + len(self._fragments or b"") + len(self._protocol.reader.buffer)

    def drop_partial(self) -> None:
        """Release an incomplete command; nothing more is fed."""
        self._fragments = None
        if self._form is not None:
            self._form.drop_partial()
        self._unread_input = memoryview(b"")
        self._data_frames.clear()
        if len(self._protocol.reader.buffer) > _LONG_REST:  # a shorter one may hold a close frame
            self._protocol.reader.discard()

    def take_batch(self) -> None:
        """Return None: frames are returned one by one. See `FrameReader.take_batch`."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Receive bytes from the peer. Return frames that a part of them completes.

        A call without bytes may return more of them, see `has_more`: inflation is incremental, so
        that no call takes long.
        """
        if chunk:
            self._unread_input = memoryview(bytes(self._unread_input) + chunk)
        if not self._data_frames:
            self._receive_slice()
        frames: list[Frame] = []
        inflated = 0
        while self._data_frames and self.error is None and inflated < MAX_INFLATED_CHUNK_SIZE:
            event = self._data_frames[0]
            if isinstance(event, DeflatedFrame):
                piece, is_whole = self._inflate(event)
                inflated += len(piece)
            else:
                piece, is_whole = bytes(event.data), True
            if is_whole:
                self._data_frames.popleft()
            content = self._append_piece(piece, event.opcode, is_whole=is_whole and event.fin)
            if content is not None:
                self._process_message((content, self._fragments_are_text), frames)
        if not self._data_frames and self._protocol.parser_exc is not None and self.error is None:
            self.error = FrameError(str(self._protocol.parser_exc))
        return frames

    def receive_close(self, data: bytes) -> None:
        """Receive bytes that are ignored, except for the peer's close frame."""
        self._protocol.receive_data(data[:_SLICE])
        self._protocol.events_received()

    def _receive_slice(self) -> None:
        """Pass a limited part of the input to the library, and queue the data frames in it."""
        part, self._unread_input = self._unread_input[:_SLICE], self._unread_input[_SLICE:]
        self._protocol.receive_data(bytes(part))
        for event in self._protocol.events_received():
            if isinstance(event, WebsocketFrame) and event.opcode in _DATA:
                self._data_frames.append(event)
                self._count_fragments(event)

    def _count_fragments(self, event: WebsocketFrame) -> None:
        self._fragment_count = 0 if event.fin else self._fragment_count + 1
        if self._fragment_count > MAX_MESSAGE_FRAGMENTS:
            problem = f"a message of more than {MAX_MESSAGE_FRAGMENTS} fragments"
            self._fail_connection(problem, CloseCode.MESSAGE_TOO_BIG)

    def _inflate(self, frame: DeflatedFrame) -> tuple[bytes, bool]:
        """Inflate a piece of the first frame. Return it, and whether it was the last one."""
        inflater = self._inflater
        assert inflater is not None  # noqa: S101 - there are no such frames without it
        if not inflater.has_more:
            inflater.start_frame(frame)
        try:
            piece = inflater.next_piece()
        except zlib.error as error:
            self._fail_connection(f"a message cannot be inflated: {error}", CloseCode.INVALID_DATA)
            return b"", True
        return piece, not inflater.has_more

    def _append_piece(self, piece: bytes, opcode: Opcode, *, is_whole: bool) -> bytes | None:
        """Append a piece to the incoming message. Return its content if it is complete."""
        if self._fragments is None:
            if opcode is not Opcode.CONT:
                self._fragments_are_text = opcode is Opcode.TEXT
            if is_whole:
                return piece
            self._fragments = bytearray()
        self._fragments += piece
        if len(self._fragments) > MAX_AMPS_FRAME_SIZE:
            problem = f"a message over the limit of {MAX_AMPS_FRAME_SIZE} bytes"
            self._fail_connection(problem, CloseCode.MESSAGE_TOO_BIG)
            return None
        if not is_whole:
            return None
        content, self._fragments = bytes(self._fragments), None
        return content

    def _process_message(self, message: WebsocketMessage, frames: list[Frame]) -> None:
        """Process a complete message; append the commands that it completes to the frames."""
        if self._form is None:
            self._form, says_nothing_else = choose_form(message)
            if says_nothing_else:
                return
        try:
            self._form.read(message, frames)
        except FrameError as error:
            self.error = error

    def _fail_connection(self, problem: str, code: CloseCode) -> None:
        """Stop reading after an error, and close the connection with its reason."""
        self.error = FrameError(problem)
        self._protocol.fail(code, problem)
        self._fragments = None

    def encode(self, frames: bytes, *, as_text: bool) -> bytes:
        """Encode length-prefixed frames as websocket messages.

        Args:
            frames: one or more whole frames.
            as_text: whether to send text messages, unless the peer has chosen a type. A message
                that is not UTF-8 is sent as binary, because peers must otherwise fail the
                connection.

        Returns:
            The bytes for the peer, empty if the connection is being closed.
        """
        protocol = self._protocol
        if protocol.state is not OPEN:
            return b""
        form = self._form or WholeForm()
        for message, is_text in form.write(frames, as_text=as_text):
            if is_text:
                protocol.send_text(message)
            else:
                protocol.send_binary(message)
        return self.take_output()

    def close(self, reason: str, *, at_fault: bool) -> None:
        """Begin the closing handshake, unless it has begun.

        Args:
            reason: the reason, for people; truncated to the size of a close frame.
            at_fault: whether the peer violated the protocol.
        """
        if self._protocol.state is OPEN:
            code = CloseCode.PROTOCOL_ERROR if at_fault else CloseCode.NORMAL_CLOSURE
            text = reason.encode(errors="replace")[:_MAX_REASON_LENGTH].decode(errors="ignore")
            self._protocol.send_close(code, text)

    def take_output(self) -> bytes:
        """Return the pending output: replies to the peer's input, and handshakes."""
        chunks = self._protocol.data_to_send()
        if SEND_EOF in chunks:
            self.is_ended = True
        return b"".join(chunks)


def _describe(beginning: bytes) -> str:
    """Describe the first bytes of a connection to the wrong port."""
    if beginning[0] == _TLS_HANDSHAKE:
        return "it is a TLS handshake, and this transport has no TLS"
    if beginning[0] <= MAX_AMPS_FRAME_SIZE >> 24:
        return "it is a frame, as clients send that connect with tcp:// or tcps:// instead of ws://"
    return "it is no HTTP request"
