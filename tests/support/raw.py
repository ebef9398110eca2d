"""A peer that speaks the amps protocol with bytes of its own making.

It shares no code with the product, so that a mistake cannot hide on both sides.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from tests.support.waiting import WAIT_SECONDS

QUICK_ACKS = "ack_conflation=1ms"
"""The option of a logon whose publishes are acknowledged at once; by default within a second."""

SILENCE_SECONDS = 0.2
"""How long a test listens to find that nothing comes."""

_DECODER = json.JSONDecoder()


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame, as the protocol describes it."""
    content = json.dumps(header, separators=(",", ":")).encode() + body
    return struct.pack(">I", len(content)) + content


class Connection:
    """A connection to a server, and what has come."""

    _received = b""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def hears_nothing(self) -> bool:
        """Whether the server stays silent for a while."""
        try:
            self.pass_over(SILENCE_SECONDS)
        except TimeoutError:
            return True
        return False

    def is_disconnected(self) -> bool:
        """Whether the server closes the connection; what it says before is passed over."""
        try:
            while True:
                self.pass_over()
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False

    def pass_over(self, wait: float = WAIT_SECONDS) -> None:
        """Take whatever comes next.

        Raises:
            TimeoutError: nothing came.
            EOFError: the server closed the connection.
        """
        raise NotImplementedError

    def take(self, size: int) -> bytes:
        """So many bytes, whatever they are."""
        self._fill(size)
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _fill(self, size: int) -> None:
        """Have so many bytes; what has come stays for the next call if the rest does not come."""
        while len(self._received) < size:
            self._received += self._read()

    def _read(self) -> bytes:
        """What comes next, of any length."""
        chunk = self.socket.recv(65536)
        if not chunk:
            raise EOFError("the server closed the connection")
        return chunk


class RawPeer(Connection):
    """A connection to a server, frame by frame."""

    _held: list[bytes] | None = None

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame."""
        if self._held is None:
            self.socket.sendall(frame(header, body))
        else:
            self._held.append(frame(header, body))

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Send what is sent meanwhile in one piece: for the server, no time passes in between."""
        self._held = []
        yield
        held, self._held = b"".join(self._held), None
        self.socket.sendall(held)

    def receive(self, wait: float = WAIT_SECONDS) -> tuple[dict[str, Any], bytes]:
        """The next frame: header and body.

        Raises:
            TimeoutError: nothing came.
            EOFError: the server closed the connection.
        """
        self.socket.settimeout(wait)
        try:
            self._fill(4)
            end_of_frame = 4 + struct.unpack_from(">I", self._received)[0]
            self._fill(end_of_frame)
        finally:
            self.socket.settimeout(WAIT_SECONDS)  # what is sent next has its own time
        content = self.take(end_of_frame)[4:]
        header, end = _DECODER.raw_decode(content.decode("latin-1"))
        text, body = content[:end], content[end:]
        return header if text.isascii() else json.loads(text), body

    def pass_over(self, wait: float = WAIT_SECONDS) -> None:
        """See `Connection.pass_over`."""
        self.receive(wait)

    def receive_header(self) -> dict[str, Any]:
        """The header of the next frame, which has no body."""
        header, body = self.receive()
        assert body == b""
        return header

    def ask(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Send a frame, and give the header of the next one."""
        self.send(header, body)
        return self.receive_header()

    def log_on(
        self, name: str = "tester", message_type: str = "json", **keys: Any
    ) -> dict[str, Any]:
        """Log on, and give the ack."""
        header = {"c": "logon", "cid": "logon", "client_name": name, "mt": message_type}
        return self.ask(header | {"a": "processed"} | keys)

    def subscribe(self, topic: str, sub_id: str, **keys: Any) -> dict[str, Any]:
        """Subscribe, and give the ack."""
        return self.ask(
            {"c": "subscribe", "cid": sub_id, "sub_id": sub_id, "t": topic, "a": "processed"} | keys
        )

    def publish(self, topic: str, body: bytes, **keys: Any) -> None:
        """Publish a message."""
        self.send({"c": "publish", "t": topic} | keys, body)

    def flush(self) -> None:
        """Wait until the server has dealt with everything sent."""
        ack = self.ask({"c": "flush", "cid": "flush", "a": "completed"})
        assert (ack["c"], ack["a"], ack["cid"]) == ("ack", "completed", "flush")
