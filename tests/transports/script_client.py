"""A client that speaks websockets as programs in browsers do, message by message."""

from __future__ import annotations

import json
import re
import struct
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import WAIT_SECONDS

_ALONE = {"ack", "group_begin", "group_end", "heartbeat"}

Received = tuple[dict[str, Any], "str | bytes | None"]
"""A header, and the body that came with it."""


class ScriptClient:
    """Sends each part of a command as a message, and is as strict about answers as such clients.

    Args:
        url: where to connect to.
        mode: `text` or `binary`: the form of bodies.
        arguments: for the websocket library.
    """

    connection: ClientConnection

    def __init__(self, url: str, mode: str = "text", **arguments: Any) -> None:
        self._opening = connect(url, open_timeout=WAIT_SECONDS, max_size=None, **arguments)
        self._mode = mode
        self._commands = 0

    def __enter__(self) -> Self:
        self.connection = self._opening.__enter__()
        self.connection.send(self._mode)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opening.__exit__(kind, error, trace)

    def send(self, header: dict[str, Any], *parts: str | bytes) -> None:
        """Send a command: the number of its messages, the header, the parts of the body."""
        self.connection.send(struct.pack("<I", 1 + len(parts)))
        self.connection.send(json.dumps(header, separators=(",", ":")))
        for part in parts:
            self.connection.send(part)

    def receive(self) -> Received:
        """The next header, and its body as the message that it came in; None without one."""
        header = self.receive_header()
        if header["c"] in _ALONE or header["c"] == "sow":
            return header, None
        header["sids"].split(",")
        return header, self.connection.recv(WAIT_SECONDS)

    def receive_header(self) -> dict[str, Any]:
        """The next message, which has to be a header: a text."""
        message = self.connection.recv(WAIT_SECONDS)
        assert isinstance(message, str)
        header: dict[str, Any] = json.loads(message)
        if "s" in header:
            assert re.search(r'"s":(\d+),', message) is not None
        assert "opts" not in header
        return header

    def receive_records(self) -> list[tuple[dict[str, Any], str | bytes]]:
        """The records of the next batch: what describes each, and its body."""
        batch = self.receive_header()
        assert batch["c"] == "sow"
        return [
            (self.receive_header(), self.connection.recv(WAIT_SECONDS)) for _ in range(batch["bs"])
        ]

    def ask(self, command: str, acks: str = "processed", **keys: Any) -> dict[str, Any]:
        """Send a command, and give the header of the answer, which is an ack of that command."""
        self._commands += 1
        cid = str(self._commands)
        self.send({"c": command, **keys, "a": acks, "cid": cid})
        ack = self.receive_header()
        assert (ack["c"], ack.get("query_id") or ack.get("cid")) == ("ack", cid), ack
        return ack

    def log_on(self, name: str) -> dict[str, Any]:
        """Log on as somebody without a name, and give the ack."""
        return self.ask("logon", version="5.2.2.2", client_name=name, user_id="", pw="")

    def subscribe(self, topic: str, command: str = "subscribe", **keys: Any) -> dict[str, Any]:
        """Subscribe with everything that such clients send, and give the ack."""
        cid = str(self._commands + 1)
        return self.ask(command, t=topic, sub_id=cid, query_id=cid, **keys)

    def publish(self, topic: str, *parts: str | bytes, command: str = "publish") -> None:
        """Publish a message."""
        self.send({"c": command, "t": topic}, *parts)
