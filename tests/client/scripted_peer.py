"""A TCP server that answers by a script, for what the real server cannot be made to do."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.raw import frame

Header = dict[str, Any]
Answer = Callable[[Header, bytes], list[bytes]]


def accept(header: Header, _body: bytes = b"") -> list[bytes]:
    """Say success to every acknowledgement that a command asks for."""
    asked = [ack for ack in header.get("a", "").split(",") if ack]
    identity = {key: header[key] for key in ("cid", "s") if key in header}
    return [frame({"c": "ack", "a": ack, "status": "success"} | identity) for ack in asked]


def refuse(header: Header, reason: str, detail: str | None = None) -> list[bytes]:
    """Say failure."""
    keys: Header = {"c": "ack", "cid": header["cid"], "a": "processed", "status": "failure"}
    keys["reason"] = reason
    if detail is not None:
        keys["detail"] = detail
    return [frame(keys)]


class ScriptedPeer:
    """A listening server.

    Attributes:
        port: where it listens, on the loopback address.
        received: the headers and bodies that came, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received: list[tuple[Header, bytes]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def commands(self) -> list[str]:
        """The names of the commands that came."""
        return [header["c"] for header, _ in self.received]

    def bodies(self, command: str) -> list[bytes]:
        """The bodies that came with a command."""
        return [body for header, body in self.received if header["c"] == command]

    def header(self, command: str) -> Header:
        """The first header of a command."""
        return next(header for header, _ in self.received if header["c"] == command)

    def close(self) -> None:
        """Stop listening; connections that exist go on."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                while True:
                    (length,) = struct.unpack(">I", _take(connection, 4))
                    header, body = _split(_take(connection, length))
                    self.received.append((header, body))
                    for part in self._answer(header, body):
                        if part == HANG_UP:
                            return
                        connection.sendall(part)
            except (EOFError, OSError):
                return


def _take(connection: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        chunk = connection.recv(size - len(taken))
        if not chunk:
            raise EOFError
        taken += chunk
    return taken


def _split(content: bytes) -> tuple[Header, bytes]:
    _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
    return json.loads(content[:end]), content[end:]


HANG_UP = b"(hang up)"
"""In place of an answer: close the connection."""


@contextmanager
def scripted_peer(answer: Answer = accept) -> Iterator[ScriptedPeer]:
    """A server that answers by a script, stopped in the end."""
    peer = ScriptedPeer(answer)
    try:
        yield peer
    finally:
        peer.close()
