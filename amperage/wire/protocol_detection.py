"""The bytes before the first frame of an amps connection.

    frames                                    00 00 01 2c {"c":"logon" ...
    HTTP preflight, answered, then frames     GET /amps/json HTTP/1.1 ... Upgrade: ...
    zlib, both ways from now on               78 9c ...
    HTTP preflight, then zlib

The first byte distinguishes them: the length of a frame within the limit begins with a byte of at
most 0x0c, an HTTP request for an upgrade with "G", and a zlib stream with 0x78. Nothing of this is
configured; the peer chooses (AMPS User Guide, HTTP Preflight and TCP Connections). The first byte
also reveals a peer that has connected to the wrong port.

`ProtocolDetector` receives the bytes of a new connection until the choice is known. It does no I/O.
"""

from __future__ import annotations

import re
from typing import Final

from websockets.utils import accept_key

from amperage.wire.framing import FrameError

_GET: Final = ord("G")
_ZLIB: Final = 0x78
_END_OF_REQUEST: Final = b"\r\n\r\n"
_MAX_REQUEST_LENGTH: Final = 16 * 1024
_REQUEST_LINE: Final = re.compile(r"GET \S+ HTTP/1\.\d")
_TOKEN: Final = re.compile(r"[\w!#$%&'*+.^`|~/-]+", re.ASCII)

_STRANGERS: Final = {
    0x16: "a TLS handshake: this transport has no TLS",
    0x81: "a websocket message: this transport does not speak websocket",
    0x82: "a websocket message: this transport does not speak websocket",
    **dict.fromkeys(b"CDHOPT", "an HTTP request: this is the port of an AMPS transport"),
}
"""Other protocols, by a first byte that would begin the length of a frame over the limit."""

_UPGRADE_REQUIRED: Final = (
    b"HTTP/1.1 426 Upgrade Required\r\n"
    b"Upgrade: amps\r\nConnection: Upgrade, close\r\nContent-Type: text/plain\r\n\r\n"
    b"This is the port of an AMPS transport. A client that connects through an HTTP proxy asks for"
    b" an upgrade first.\n"
)


class ProtocolDetector:
    """Detects how a connection begins.

    Attributes:
        reply: bytes for the peer, to be sent as soon as there are any.
        is_complete: whether the format of the rest of the connection is known.
        is_compressed: whether the rest is compressed with zlib, in both directions.
    """

    __slots__ = ("_is_preflight_done", "_request", "is_complete", "is_compressed", "reply")

    def __init__(self) -> None:
        self.reply = b""
        self.is_complete = False
        self.is_compressed = False
        self._is_preflight_done = False
        self._request = b""  # the received part of an HTTP request

    @property
    def has_partial_request(self) -> bool:
        """True while an HTTP request is incomplete."""
        return bool(self._request)

    def feed(self, data: bytes) -> bytes:
        """Receive bytes of the connection.

        Returns:
            The bytes, of these and earlier ones, that do not belong to the opening.

        Raises:
            FrameError: the peer sent an invalid HTTP request or one that is not a preflight, or
                uses another protocol.
        """
        if not data:
            return data
        if not self._request and (stranger := _STRANGERS.get(data[0])) is not None:
            raise FrameError(stranger)
        if self._request or (data[0] == _GET and not self._is_preflight_done):
            return self._process_request(self._request + data)
        self.is_complete = True
        self.is_compressed = data[0] == _ZLIB
        return data

    def _process_request(self, request: bytes) -> bytes:
        end = request.find(_END_OF_REQUEST, 0, _MAX_REQUEST_LENGTH)
        if end < 0:
            if len(request) >= _MAX_REQUEST_LENGTH:
                raise FrameError(f"an HTTP request over the limit of {_MAX_REQUEST_LENGTH} bytes")
            self._request = request
            return b""
        self._request = b""
        self._is_preflight_done = True
        headers = _read_headers(request[:end])
        protocol = _TOKEN.match(headers.get("upgrade", ""))
        if protocol is None:
            self.reply = _UPGRADE_REQUIRED
            raise FrameError("an HTTP request that asks for no upgrade")
        self.reply = _switching_protocols(protocol[0], headers.get("sec-websocket-key"))
        return self.feed(request[end + len(_END_OF_REQUEST) :])


def _read_headers(request: bytes) -> dict[str, str]:
    """Return the headers of an HTTP request, by their names in lower case."""
    line, *lines = request.decode("latin-1").split("\r\n")
    if _REQUEST_LINE.fullmatch(line) is None:
        raise FrameError("an HTTP request whose first line is not GET, a path and HTTP/1.x")
    headers = (header.partition(":") for header in lines)
    return {name.strip().lower(): value.strip() for name, _, value in headers}


def _switching_protocols(protocol: str, key: str | None) -> bytes:
    """Return the response that accepts an upgrade.

    The protocol is the one that the peer requested. Proxies that take the preflight for that of a
    websocket expect the answer to its key.
    """
    answer = "" if key is None else f"Sec-WebSocket-Accept: {accept_key(key)}\r\n"
    return (
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n"
        f"{answer}\r\n"
    ).encode("ascii")
