"""Channels encode frames for the socket: websocket messages, compression, legacy protocols.

Over tcp, tcps and unix, frames are written to the socket verbatim, without a channel. A channel
does no I/O: a shell sends the results of `open`, `encode` and `take_replies`, and passes the bytes
that it reads to `decode`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from struct import Struct
from typing import Final, Protocol

from websockets.client import ClientProtocol as WebsocketProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from amperage.client.errors import ProtocolError
from amperage.client.uri import AMPS, ServerUri
from amperage.wire.compression import Compression
from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, FrameError, frame
from amperage.wire.legacy.caller import LegacyCaller
from amperage.wire.legacy.dialects import DIALECTS
from amperage.wire.websocket_forms import is_utf8

_LENGTH: Final = Struct(">I")
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

_SILENT: Final = logging.getLogger("amperage.client.websocket")  # errors are raised instead
_SILENT.disabled = True


class Channel(Protocol):
    """The encoding of frames on one connection.

    Attributes:
        is_open: whether frames can be sent.
    """

    is_open: bool

    def open(self) -> bytes:
        """Return the first bytes to send."""

    def encode(self, frames: bytes) -> bytes:
        """Return the bytes to send for whole frames."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode received bytes to frames; pieces may end anywhere in a frame.

        Raises:
            ProtocolError: the bytes are not of this encoding.
        """

    def take_replies(self) -> bytes:
        """Return the bytes that the channel itself has to send, once."""


def channel_for(uri: ServerUri) -> Channel | None:
    """Return the channel for a URI; None if it needs none."""
    if uri.scheme in ("ws", "wss"):
        return WebsocketChannel(uri)
    compression = CompressedChannel() if uri.options.get("compression") else None
    return compression if uri.protocol == AMPS else LegacyChannel(uri.protocol, compression)


class CompressedChannel:
    """A zlib stream in each direction; the server detects it by its first byte."""

    def __init__(self) -> None:
        self.is_open = True
        self._compression = Compression()

    def open(self) -> bytes:
        """Return no bytes: the stream begins with the first frame."""
        return b""

    def encode(self, frames: bytes) -> bytes:
        """Compress frames, and flush, so that the server can read all of them at once."""
        return self._compression.compress(frames)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decompress received bytes, piece by piece."""
        try:
            yield from self._compression.decompress(data)
        except FrameError as error:
            raise ProtocolError(f"the server sent data that are not compressed: {error}") from None

    def take_replies(self) -> bytes:
        """Return no bytes: this channel has no replies."""
        return b""


class LegacyChannel:
    """Messages of a legacy protocol in place of frames, optionally compressed.

    Args:
        protocol: the name of the protocol.
        compression: the channel for the messages; None for the socket itself.
    """

    def __init__(self, protocol: str, compression: CompressedChannel | None) -> None:
        self.is_open = True
        self._caller = LegacyCaller(DIALECTS[protocol])
        self._compression = compression

    def open(self) -> bytes:
        """Return no bytes: the stream begins with the first message."""
        return b""

    def encode(self, frames: bytes) -> bytes:
        """Translate frames to messages."""
        messages = self._caller.encode(frames)
        return messages if self._compression is None else self._compression.encode(messages)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Translate messages to frames."""
        parts = [data] if self._compression is None else self._compression.decode(data)
        for part in parts:
            for header, body in self._caller.feed(part):
                yield frame(header, body)
            if self._caller.error is not None:
                raise ProtocolError(f"the server sent an invalid message: {self._caller.error}")

    def take_replies(self) -> bytes:
        """Return no bytes: this channel has no replies."""
        return b""


class WebsocketChannel:
    """One websocket message for each frame, without the frame's length (RFC 6455).

    The handshake also carries the user and password of the URI, since a transport may require them
    there (AMPS User Guide, Websocket Options).
    """

    def __init__(self, uri: ServerUri) -> None:
        self.is_open = False
        self._authorization = _basic(uri)
        self._fragments = bytearray()
        self._protocol = WebsocketProtocol(
            parse_uri(f"{uri.scheme}://{uri.address}{uri.path or '/'}"),
            extensions=[ClientPerMessageDeflateFactory()]
            if uri.options.get("compression")
            else None,
            max_size=MAX_AMPS_FRAME_SIZE,
            logger=_SILENT,
        )

    def open(self) -> bytes:
        """Return the request of the websocket handshake."""
        request = self._protocol.connect()
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization
        self._protocol.send_request(request)
        return self.take_replies()

    def encode(self, frames: bytes) -> bytes:
        """Encode frames to messages: text if they are UTF-8, because browsers' tools show text."""
        position = 0
        while position < len(frames):
            start = position + 4
            position = start + _LENGTH.unpack_from(frames, position)[0]
            message = frames[start:position]
            if is_utf8(message):
                self._protocol.send_text(message)
            else:
                self._protocol.send_binary(message)
        return self.take_replies()

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode messages to frames."""
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Response):
                self.is_open = protocol.state is OPEN
            elif isinstance(event, Frame) and event.opcode in _DATA:
                self._fragments += event.data
                if event.fin:
                    yield _LENGTH.pack(len(self._fragments)) + self._fragments
                    self._fragments.clear()
        if protocol.handshake_exc is not None:
            raise ProtocolError(f"no websocket: {protocol.handshake_exc}")
        if protocol.parser_exc is not None:
            raise ProtocolError(f"the server broke the websocket protocol: {protocol.parser_exc}")

    def take_replies(self) -> bytes:
        """Return the answers to ping and close frames, once."""
        return b"".join(self._protocol.data_to_send())


def _basic(uri: ServerUri) -> str | None:
    if uri.user is None or uri.password is None:
        return None
    token = base64.b64encode(f"{uri.user}:{uri.password}".encode()).decode("ascii")
    return f"Basic {token}"
