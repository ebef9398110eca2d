"""Publishers that go from one instance to another, and what instances must hold afterwards.

Each has keys of its own. So the order of its commands says what its records are, on whichever
instance they were given, and instances that have all of them have the same records.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.cluster import Instance
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer
from tests.support.sow import query

TOPICS: Final = "^(orders|events)$"
_KEYS: Final = 10
_SIZES: Final = (1, 30, 300, 3000)
_UNSAFE: Final = 500
"""Commands that may wait for their acknowledgement."""

_PATIENCE: Final = (0.5, 3.0)
"""Seconds without an acknowledgement after which a publisher tries another instance."""

Records = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Command:
    """What a publisher has asked for.

    Attributes:
        kind: `publish`, `delta_publish`, `sow_delete`, or `event`, which becomes no record.
        key: of the record concerned; empty for an event.
        message: what was published, empty for a deletion.
        frame: as bytes for a server.
    """

    kind: str
    key: str
    message: dict[str, Any]
    frame: bytes


@dataclass
class MovingPublisher:
    """A publisher with a publish store, which keeps no instance for long.

    Attributes:
        name: its client name.
        homes: the instances that it may go to.
        chance: decides what it does.
        commands: all of them, in order; the n-th has number n + 1.
        acknowledged: up to which of them all is safe.
        failures: what went wrong on its thread.
    """

    name: str
    homes: Sequence[Instance]
    chance: random.Random
    commands: list[Command] = field(default_factory=list)
    acknowledged: int = 0
    failures: list[AssertionError] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Publish until told to stop, and then until all is safe."""
        try:
            while not (stop.is_set() and self.is_safe):
                self._visit(self.chance.choice(self.homes), stop)
        except AssertionError as error:
            self.failures.append(error)

    @property
    def is_safe(self) -> bool:
        """Whether everything has been acknowledged."""
        return self.acknowledged == len(self.commands)

    def _visit(self, home: Instance, stop: threading.Event) -> None:
        """Work at one instance, for as long as it answers, or as one likes."""
        patience = self.chance.uniform(*_PATIENCE)
        try:
            with RawPeer(home.port) as peer:
                peer.send(
                    {"c": "logon", "cid": "1", "client_name": self.name, "mt": "json"}
                    | {"a": "processed", "o": "ack_conflation=10ms"}
                )
                assert peer.receive(patience)[0]["status"] == "success"
                self._work(peer, patience, stop)
        except (OSError, EOFError):  # it is down, or does not answer
            time.sleep(0.02)

    def _work(self, peer: RawPeer, patience: float, stop: threading.Event) -> None:
        # From a random place: what the instance has already, it must not take twice.
        start = self.chance.randint(max(self.acknowledged - 30, 0), self.acknowledged)
        peer.socket.sendall(b"".join(command.frame for command in self.commands[start:]))
        leaves, heard = time.monotonic() + self.chance.uniform(0.2, 5), time.monotonic()
        while not (stop.is_set() and self.is_safe):
            if not stop.is_set() and len(self.commands) - self.acknowledged < _UNSAFE:
                peer.socket.sendall(b"".join(self._some()))
            if self._take_ack(peer):
                heard = time.monotonic()
            elif not self.is_safe and time.monotonic() - heard > patience:
                return
            if time.monotonic() > leaves:
                return

    def _take_ack(self, peer: RawPeer) -> bool:
        try:
            ack = peer.receive(0.005)[0]
        except TimeoutError:
            return False
        assert ack["a"] == "persisted", ack
        assert ack["status"] == "success" or ack["reason"] == "duplicate", ack
        self.acknowledged = max(self.acknowledged, ack["s"])
        return True

    def _some(self) -> list[bytes]:
        return [self._any().frame for _ in range(self.chance.randrange(1, 20))]

    def _any(self) -> Command:
        number = len(self.commands) + 1
        key = f"{self.name}-{self.chance.randrange(_KEYS)}"
        kind = self.chance.choice(("publish", "publish", "delta_publish", "sow_delete", "event"))
        topic = "events" if kind == "event" else "orders"
        message: dict[str, Any] = {}
        if kind != "sow_delete":
            message = {"id": key, "by": self.name, "n": number}
            message[self.chance.choice("abc")] = self.chance.randrange(1000)
            message["pad"] = "x" * self.chance.choice(_SIZES)
        header = {"c": "publish" if kind == "event" else kind, "t": topic, "s": number}
        body = json.dumps(message or {"id": key}).encode()
        command = Command(
            kind,
            "" if kind == "event" else key,
            message,
            frame(header | {"a": "persisted"}, body),
        )
        self.commands.append(command)
        return command


@dataclass(frozen=True)
class Logged:
    """A message as a bookmark subscription gives it."""

    bookmark: str
    topic: str
    body: bytes

    @property
    def number(self) -> int:
        """Its publisher's number."""
        return int(self.bookmark.split("|")[1])


def read_log(server: RunningServer) -> list[Logged]:
    """All messages of an instance, in its order."""
    with server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": TOPICS, "bm": "0", "a": "completed"})
        log = []
        while (received := peer.receive())[0]["c"] != "ack":
            header, body = received
            log.append(Logged(header["bm"], header["t"], body))
        return log


@dataclass(frozen=True)
class Model:
    """What every instance has to hold when all is well again.

    Attributes:
        publishers: all of whose commands are safe.
        keeps_order: whether commands of a publisher have the same order on every instance: not
            where it may have gone from an instance to one that lacked its last commands.
    """

    publishers: Sequence[MovingPublisher]
    keeps_order: bool

    @property
    def messages(self) -> int:
        """How many messages each instance has."""
        return sum(one.kind != "sow_delete" for each in self.publishers for one in each.commands)

    def check(self, name: str, server: RunningServer) -> None:
        """Compare an instance with what it has to hold."""
        log = read_log(server)
        bookmarks = [one.bookmark for one in log]
        assert len(set(bookmarks)) == len(bookmarks), f"{name} has messages twice"
        written = {each.name: _Written(each) for each in self.publishers}
        for one in log:
            message = json.loads(one.body)
            written[message["by"]].take(name, one, message, self.keeps_order)
        for each in written.values():
            each.finish(name)
        if self.keeps_order:
            expected = {
                key: value for each in written.values() for key, value in each.records.items()
            }
            with server.log_on("auditor") as peer:
                found = {record["id"]: record for record in query(peer, "orders").messages}
            assert found == expected, f"{name} has other records"


class _Written:
    """What of one publisher is in the log of an instance."""

    def __init__(self, publisher: MovingPublisher) -> None:
        self.publisher = publisher
        self.records: Records = {}
        self._numbers: set[int] = set()
        self._done = 0

    def take(self, name: str, one: Logged, message: dict[str, Any], keeps_order: bool) -> None:
        """See that a message is what was published, and where it belongs."""
        number = one.number
        command = self.publisher.commands[number - 1]
        assert message["n"] == number, f"{name} has {message} as number {number}"
        self._numbers.add(number)
        if not keeps_order:
            return
        assert number > self._done, f"{name} has number {number} behind {self._done}"
        expected = self._apply(number)
        assert message == expected, f"{name} has {message} for {command}, expected {expected}"

    def finish(self, name: str) -> None:
        """See that nothing is missing."""
        commands = self.publisher.commands
        published = {n for n, one in enumerate(commands, 1) if one.kind != "sow_delete"}
        missing = sorted(published - self._numbers)
        assert not missing, f"{name} lacks {len(missing)} of {self.publisher.name}: {missing[:9]}"
        self._apply(len(commands))

    def _apply(self, number: int) -> dict[str, Any]:
        """Carry out all commands up to one; gives the message that it came to."""
        message: dict[str, Any] = {}
        for command in self.publisher.commands[self._done : number]:
            message = command.message
            if command.kind == "sow_delete":
                self.records.pop(command.key, None)
            elif command.key:
                if command.kind == "delta_publish":
                    message = self.records.get(command.key, {}) | message
                self.records[command.key] = message
        self._done = number
        return message
