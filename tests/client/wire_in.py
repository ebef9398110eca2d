"""The client's core without a connection: what it is told, whole or in parts, and what it sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from amperage.client.bookmarks import BookmarkStore
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStore
from amperage.client.recovery import RecoveringProtocol
from amperage.wire.header import Header
from tests.support.raw import frame

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


def make(store: PublishStore | None = None) -> RecoveringProtocol:
    return RecoveringProtocol(PublishStore() if store is None else store, BookmarkStore())


def online(protocol: RecoveringProtocol | None = None, **logon: Any) -> RecoveringProtocol:
    """A protocol with a session, whose output so far has been taken."""
    protocol = protocol or make()
    protocol.begin_session(Header(command="ack", **logon))
    protocol.output.clear()
    return protocol


def ack(request: PendingRequest, ack_type: str = "processed", **keys: object) -> bytes:
    return frame({"c": "ack", "cid": request.command_id, "a": ack_type, "status": "success"} | keys)


def inbox_of(request: PendingRequest) -> StreamInbox:
    assert request.inbox is not None
    return request.inbox


def bodies(request: PendingRequest) -> list[bytes]:
    return [message.body for message in inbox_of(request).messages]
