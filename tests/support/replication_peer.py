"""An instance that replicates, with bytes of its own making; it shares no code with the product."""

from __future__ import annotations

import socket
import struct
import zlib
from typing import Any, NamedTuple, Self

import msgspec

from tests.support.raw import Connection
from tests.support.waiting import WAIT_SECONDS

HELLO, REFUSED, BEAT, BEGIN, RESUME, KNOWLEDGE, ACK, BATCH, WORD = range(1, 10)

_HERE = {"file": "peer.xml", "line": 1}
_HEAD = struct.Struct("<IBB")


def description(name: str, group: str, **fields: Any) -> bytes:
    """What an instance says of itself that has `orders` in its log, and no destinations."""
    selection = {"name": "orders", "message_type": "json", "is_expression": False}
    said = {
        "name": name,
        "group": group,
        "location": _HERE,
        "listens": {"host": None, "port": 1, "is_secure": False, "location": _HERE},
        "log_location": _HERE,
        "logged": [{"selection": selection, "location": _HERE}],
        "stored": [],
        "destinations": [],
        "downgrades": False,
    }
    return msgspec.msgpack.encode(said | fields)


class Listening:
    """Where an instance is connected to.

    Attributes:
        port: where it listens.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def accept(self, name: str = "peer", wait: float = WAIT_SECONDS) -> ReplicationPeer:
        """The next connection.

        Raises:
            TimeoutError: there is none.
        """
        self._socket.settimeout(wait)
        connected, _ = self._socket.accept()
        connected.settimeout(WAIT_SECONDS)
        return ReplicationPeer.over(connected, name)


def frame(kind: int, *fields: Any) -> bytes:
    """A control frame."""
    payload = msgspec.msgpack.encode(fields)
    return _HEAD.pack(len(payload) + 2, kind, 0) + payload


class Came(NamedTuple):
    """A frame that has come: its type, and its fields, or what a batch is as bytes."""

    kind: int
    fields: Any


class ReplicationPeer(Connection):
    """A connection to a replication transport.

    Args:
        port: where that listens.
        name: the peer's Name.
        group: its Group.

    Attributes:
        hears_mesh: whether words of the mesh count as frames that have come.
    """

    hears_mesh = False

    def __init__(self, port: int, name: str = "peer", group: str = "peers") -> None:
        super().__init__(port)
        self.name = name
        self.group = group

    @classmethod
    def over(cls, connected: socket.socket, name: str = "peer") -> Self:
        """A peer on a connection that there is already."""
        peer = cls.__new__(cls)
        peer.socket, peer.name, peer.group = connected, name, "peers"
        return peer

    def greet(self, **fields: Any) -> None:
        """Say who is there."""
        hello = {
            "version": 3,
            "instance": self.name,
            "group": self.group,
            "log": f"log of {self.name}",
            "began": 1,
            "sends": True,
            "takes": True,
            "user": "",
            "password": "",
            "description": description(self.name, self.group),
            "nonce": 7,
        } | fields
        self.send(HELLO, *hello.values())

    def send(self, kind: int, *fields: Any) -> None:
        """Send a control frame."""
        self.socket.sendall(frame(kind, *fields))

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        self.socket.sendall(data)

    def receive(self, wait: float = WAIT_SECONDS) -> Came:
        """The next frame that is no beat, and no word of the mesh, which come when it is time.

        Raises:
            TimeoutError: nothing came.
            EOFError: the connection was closed.
        """
        self.socket.settimeout(wait)
        while True:
            length, kind, flags = _HEAD.unpack(self.take(_HEAD.size))
            payload = self.take(length - 2)
            if flags:
                payload = zlib.decompress(payload)
            if kind == BEAT:
                continue
            came = Came(kind, payload if kind == BATCH else msgspec.msgpack.decode(payload))
            if kind != WORD or came.fields[3] != "mesh" or self.hears_mesh:
                return came

    def pass_over(self, wait: float = WAIT_SECONDS) -> None:
        """See `Connection`."""
        self.receive(wait)

    def refusal(self) -> str:
        """Why it is refused; the connection is closed then."""
        came = self.receive()
        assert came.kind == REFUSED, came
        assert self.is_disconnected()
        (reason,) = came.fields
        return str(reason)
