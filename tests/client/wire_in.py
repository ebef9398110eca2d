"""Feeds what a server says to the client's core: whole, byte by byte, and cut between frames."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from client.protocol import ClientProtocol

Feed = Callable[[ClientProtocol, bytes], None]
Sent = list[tuple[dict[str, Any], bytes]]


def whole(protocol: ClientProtocol, data: bytes) -> None:
    """All bytes at once."""
    protocol.receive(data)


def byte_by_byte(protocol: ClientProtocol, data: bytes) -> None:
    """One byte at a time."""
    for value in data:
        protocol.receive(bytes([value]))


def with_trailing_bytes(protocol: ClientProtocol, data: bytes) -> None:
    """All bytes at once, and the start of a frame whose rest is still to come."""
    protocol.receive(data + struct.pack(">I", 1000) + b'{"c":"p"')


FEEDS: list[Feed] = [whole, byte_by_byte, with_trailing_bytes]


def sent(protocol: ClientProtocol) -> Sent:
    """Take what the client has written, as headers and bodies."""
    data = bytes(protocol.output)
    protocol.output.clear()
    frames: Sent = []
    while data:
        (length,) = struct.unpack_from(">I", data)
        content, data = data[4 : 4 + length], data[4 + length :]
        assert len(content) == length
        _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
        frames.append((json.loads(content[:end]), content[end:]))
    return frames
