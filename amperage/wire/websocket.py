"""The websocket framing: commands in websocket messages.

    HTTP request with Upgrade: websocket  ->  101 Switching Protocols
    text or binary message  {"c":"p","t":"orders"}{"id":1,"qty":5}

What a message holds is the peer's choice among three forms (amperage/wire/websocket_forms.py).

`WebsocketPeer` is one connection's server side, without I/O: the opening handshake in two steps
(`take_request`, then `accept` or `refuse`), after it `feed` for what the peer sends and `encode`
for what it is sent. The rest of the server knows length-prefixed frames only; they are cut here.
Pings, fragments, compression and the closing handshake are the business of the websockets library.
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

from amperage.wire.framing import MAXIMUM_FRAME, Frame, FrameError
from amperage.wire.inflating import LARGEST_PIECE, DeflatedFrame, DeflateFactory, Inflater
from amperage.wire.websocket_forms import Form, Message, WholeForm, choose_form

_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_METHOD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TLS_HANDSHAKE: Final = 0x16
_LONGEST_REASON: Final = 123  # bytes; RFC 6455, section 5.5
_SLICE: Final = 2048
"""Bytes that are given to the library at once; it takes them to pieces in one go."""
MOST_LINE: Final = 64 * 1024
"""Bytes of a line of the opening handshake: the Kerberos ticket of a user in very many groups."""
MOST_HEAD: Final = 72 * 1024
"""Bytes of all lines of the opening handshake."""
http11.MAX_LINE_LENGTH = MOST_LINE  # the library takes 8 KB, or what an environment variable says

_LONG_REST: Final = 64 * 1024
MOST_FRAGMENTS: Final = 10_000
"""Fragments of one message."""

# Windows of 4 KB compress messages nearly as well as the largest, with a fifth of the memory.
_DEFLATE: Final = DeflateFactory(
    server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5}
)

_SILENT: Final = logging.getLogger("amperage.websocket")  # the server log tells what matters
_SILENT.disabled = True


class WebsocketPeer:
    """The server's side of one websocket connection.

    Args:
        deflate: whether messages are compressed if the peer offers it.

    Attributes:
        error: what was found instead of a message; None while the peer keeps to the protocol.
        is_ended: whether the connection is to be closed once all output has been sent.
    """

    __slots__ = (
        "_events",
        "_form",
        "_fragments",
        "_fragments_are_text",
        "_fragments_taken",
        "_has_begun",
        "_head_bytes",
        "_inflater",
        "_protocol",
        "_rest",
        "error",
        "is_ended",
    )

    def __init__(self, *, deflate: bool) -> None:
        extensions = [_DEFLATE] if deflate else []
        self._protocol = ServerProtocol(
            extensions=extensions, max_size=MAXIMUM_FRAME, logger=_SILENT
        )
        self._has_begun = False
        self._head_bytes = 0
        self._form: Form | None = None  # the peer's first message tells
        self._rest = memoryview(b"")  # what has come and the library has not been given yet
        self._events: deque[WebsocketFrame] = deque()  # data frames, the first being inflated
        self._inflater: Inflater | None = None
        self._fragments: bytearray | None = None  # of a message that is not complete yet
        self._fragments_are_text = False
        self._fragments_taken = 0
        self.error: FrameError | None = None
        self.is_ended = False

    @property
    def has_partial_frame(self) -> bool:
        """Whether a command has begun that has not ended."""
        if self._fragments is not None:
            return True
        return self._form is not None and self._form.has_partial_command

    def take_request(self, data: bytes) -> Request | None:
        """Take bytes of the opening handshake.

        Returns:
            The request, when it has come in whole.

        Raises:
            FrameError: what came is no HTTP request; the reply is among the output.
        """
        protocol = self._protocol
        if data and not self._has_begun:
            self._has_begun = True
            if data[0] not in _METHOD:
                raise FrameError(_describe(data))
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD:
            raise FrameError(f"the opening handshake has more than {MOST_HEAD:,} bytes")
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
        """Agree to a request; the connection is open then.

        Args:
            request: the request.
            headers: further headers for the response.

        Raises:
            FrameError: it is no good websocket request; the reply is among the output.
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
        """Turn a request down.

        Args:
            status: the HTTP status code.
            text: why, for people.
            headers: further headers for the response.
        """
        response = self._protocol.reject(status, text + "\n")
        for name, value in headers:
            response.headers[name] = value
        self._protocol.send_response(response)

    @property
    def has_more(self) -> bool:
        """See `FrameReader.has_more`."""
        return self.error is None and bool(self._rest or self._events)

    @property
    def partial_size(self) -> int:
        """Bytes that are kept of a command that is not complete."""
        held = 0 if self._form is None else self._form.partial_size
        return held + len(self._fragments or b"") + len(self._protocol.reader.buffer)

    def drop(self) -> None:
        """Let go of a command that is not complete; nothing more is fed."""
        self._fragments = None
        if self._form is not None:
            self._form.drop()
        self._rest = memoryview(b"")
        self._events.clear()
        if len(self._protocol.reader.buffer) > _LONG_REST:  # in less there may be the goodbye
            self._protocol.reader.discard()

    def take_run(self) -> None:
        """Frames come one by one here. See `FrameReader.take_run`."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes from the peer, and give frames completed by a part of them.

        There may be more of these when nothing is fed, see `has_more`: what takes long is done bit
        by bit.
        """
        if chunk:
            self._rest = memoryview(bytes(self._rest) + chunk)
        if not self._events:
            self._read_on()
        frames: list[Frame] = []
        inflated = 0
        while self._events and self.error is None and inflated < LARGEST_PIECE:
            event = self._events[0]
            if isinstance(event, DeflatedFrame):
                piece, is_whole = self._inflate(event)
                inflated += len(piece)
            else:
                piece, is_whole = bytes(event.data), True
            if is_whole:
                self._events.popleft()
            content = self._join(piece, event.opcode, is_whole=is_whole and event.fin)
            if content is not None:
                self._read((content, self._fragments_are_text), frames)
        if not self._events and self._protocol.parser_exc is not None and self.error is None:
            self.error = FrameError(str(self._protocol.parser_exc))
        return frames

    def read_goodbye(self, data: bytes) -> None:
        """Take bytes of a peer that is listened to no more: its goodbye may be among them."""
        self._protocol.receive_data(data[:_SLICE])
        self._protocol.events_received()

    def _read_on(self) -> None:
        """Give the library what it takes at once, and keep what comes of it."""
        part, self._rest = self._rest[:_SLICE], self._rest[_SLICE:]
        self._protocol.receive_data(bytes(part))
        for event in self._protocol.events_received():
            if isinstance(event, WebsocketFrame) and event.opcode in _DATA:
                self._events.append(event)
                self._count(event)

    def _count(self, event: WebsocketFrame) -> None:
        self._fragments_taken = 0 if event.fin else self._fragments_taken + 1
        if self._fragments_taken > MOST_FRAGMENTS:
            problem = f"a message of more than {MOST_FRAGMENTS} fragments"
            self._fail(problem, CloseCode.MESSAGE_TOO_BIG)

    def _inflate(self, frame: DeflatedFrame) -> tuple[bytes, bool]:
        """Inflate a piece of the first frame; also tells whether it was the last one."""
        inflater = self._inflater
        assert inflater is not None  # noqa: S101 - there are no such frames without it
        if not inflater.has_more:
            inflater.take(frame)
        try:
            piece = inflater.piece()
        except zlib.error as error:
            self._fail(f"a message cannot be inflated: {error}", CloseCode.INVALID_DATA)
            return b"", True
        return piece, not inflater.has_more

    def _join(self, piece: bytes, opcode: Opcode, *, is_whole: bool) -> bytes | None:
        """Add to the message that is coming in; gives its content when it is whole."""
        if self._fragments is None:
            if opcode is not Opcode.CONT:
                self._fragments_are_text = opcode is Opcode.TEXT
            if is_whole:
                return piece
            self._fragments = bytearray()
        self._fragments += piece
        if len(self._fragments) > MAXIMUM_FRAME:
            problem = f"a message over the limit of {MAXIMUM_FRAME} bytes"
            self._fail(problem, CloseCode.MESSAGE_TOO_BIG)
            return None
        if not is_whole:
            return None
        content, self._fragments = bytes(self._fragments), None
        return content

    def _read(self, message: Message, frames: list[Frame]) -> None:
        """Take a whole message; adds the commands that are complete with it to the frames."""
        if self._form is None:
            self._form, says_nothing_else = choose_form(message)
            if says_nothing_else:
                return
        try:
            self._form.read(message, frames)
        except FrameError as error:
            self.error = error

    def _fail(self, problem: str, code: CloseCode) -> None:
        """Give up what the peer sends, and have it told why."""
        self.error = FrameError(problem)
        self._protocol.fail(code, problem)
        self._fragments = None

    def encode(self, frames: bytes, *, as_text: bool) -> bytes:
        """Turn length-prefixed frames into websocket messages.

        Args:
            frames: one or more whole frames.
            as_text: whether they are to be text messages, unless the peer has said which it wants.
                One that is not UTF-8 is sent as binary, since peers must give up the connection
                over it otherwise.

        Returns:
            The bytes for the peer, none if the connection is being closed.
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
            reason: why, for people; what is too long for a closing message is left out.
            at_fault: whether the peer did not keep to the protocol.
        """
        if self._protocol.state is OPEN:
            code = CloseCode.PROTOCOL_ERROR if at_fault else CloseCode.NORMAL_CLOSURE
            text = reason.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
            self._protocol.send_close(code, text)

    def take_output(self) -> bytes:
        """What has to be sent: replies to what the peer sent, and handshakes."""
        chunks = self._protocol.data_to_send()
        if SEND_EOF in chunks:
            self.is_ended = True
        return b"".join(chunks)


def _describe(beginning: bytes) -> str:
    """What a connection begins with that has come to the wrong port."""
    if beginning[0] == _TLS_HANDSHAKE:
        return "it is a TLS handshake, and this transport has no TLS"
    if beginning[0] <= MAXIMUM_FRAME >> 24:
        return "it is a frame, as clients send that connect with tcp:// or tcps:// instead of ws://"
    return "it is no HTTP request"
