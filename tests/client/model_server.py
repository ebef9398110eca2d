"""A small server for the client's core: it stores, drops duplicates, replays. No I/O.

It shares no code with the product. What it is given is bytes, what it says is bytes; its log
survives connections, everything else is forgotten with them.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw import frame

Header = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One message of the log."""

    client: str
    sequence: int
    body: bytes

    @property
    def bookmark(self) -> str:
        return f"{sum(self.client.encode())}|{self.sequence}|"


@dataclass
class ModelServer:
    """The log, and the connection of the moment.

    Attributes:
        log: every message stored, in order.
        refused_bodies: bodies that may not be published.
        commands: what came, over all connections.
    """

    log: list[Entry] = field(default_factory=list)
    refused_bodies: set[bytes] = field(default_factory=set)
    commands: list[Header] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forget_connection()

    def forget_connection(self) -> None:
        """A connection has ended; what it had sent in part is lost."""
        self._input = b""
        self._client = ""
        self._subscriptions: dict[str, Header] = {}

    def publish(self, client: str, sequence: int, body: bytes) -> bytes:
        """Somebody else publishes; what the connection of the moment is told about it."""
        return self._store(Entry(client, sequence, body))

    def receive(self, data: bytes) -> bytes:
        """Take bytes, and give the answer."""
        self._input += data
        answer = b""
        while len(self._input) >= 4:
            (length,) = struct.unpack_from(">I", self._input)
            if len(self._input) < 4 + length:
                break
            content = self._input[4 : 4 + length]
            self._input = self._input[4 + length :]
            _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
            header = json.loads(content[:end])
            self.commands.append(header)
            answer += self._obey(header, content[end:])
        return answer

    def _obey(self, header: Header, body: bytes) -> bytes:
        match header["c"]:
            case "logon":
                self._client = header["client_name"]
                return _ack(header, "processed", s=self._last_sequence(self._client))
            case "p":
                return self._take_publish(header, body)
            case "subscribe":
                return self._subscribe(header)
            case "unsubscribe":
                self._subscriptions.pop(header["sub_id"], None)
                return _ack(header, "processed")
            case "flush":
                return _ack(header, "completed")
            case _:
                return _ack(header, "processed")

    def _take_publish(self, header: Header, body: bytes) -> bytes:
        sequence = header["s"]
        ack = {"c": "ack", "a": "persisted", "s": sequence}
        if body in self.refused_bodies:
            return frame(ack | {"status": "failure", "reason": "not entitled"})
        if sequence <= self._last_sequence(self._client):
            return frame(ack | {"status": "failure", "reason": "duplicate"})
        answer = self._store(Entry(self._client, sequence, body))
        return answer + (frame(ack | {"status": "success"}) if sequence % 3 == 0 else b"")

    def _subscribe(self, header: Header) -> bytes:
        self._subscriptions[header["sub_id"]] = header
        answer = _ack(header, "processed")
        wanted = header.get("bm", "0|1|").split(",")
        positions = [n for n, entry in enumerate(self.log) if entry.bookmark in wanted]
        start = min(positions) + 1 if positions else 0 if wanted == ["0"] else len(self.log)
        for number, entry in enumerate(self.log[start:]):
            answer += _delivery(entry, [header["sub_id"]])
            if number % 4 == 3:
                answer += _ack(header, "persisted", bm=entry.bookmark)
        return answer

    def _store(self, entry: Entry) -> bytes:
        self.log.append(entry)
        return _delivery(entry, list(self._subscriptions)) if self._subscriptions else b""

    def _last_sequence(self, client: str) -> int:
        return max((entry.sequence for entry in self.log if entry.client == client), default=0)


def _delivery(entry: Entry, sub_ids: list[str]) -> bytes:
    header = {"c": "p", "t": "t", "sids": ",".join(sub_ids), "bm": entry.bookmark}
    return frame(header, entry.body)


def _ack(header: Header, ack_type: str, **keys: Any) -> bytes:
    if ack_type not in header.get("a", "").split(","):
        return b""
    return frame({"c": "ack", "cid": header["cid"], "a": ack_type, "status": "success"} | keys)
