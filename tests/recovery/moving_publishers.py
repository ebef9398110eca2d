"""Publishers that go from one instance to another, and what instances must hold afterwards.

Each has keys of its own. So the order of its commands says what its records are, on whichever
instance they were given, and instances that have all of them have the same records.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amperage.wire.bookmarks import client_hash
from tests.support.cluster import Instance
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer
from tests.support.sow import query

TOPICS: Final = "^(orders|events)$"
_KEYS: Final = 10
SIZES: Final = (1, 30, 300, 3000)
"""Of what messages are padded with, in bytes."""

_MAX_PUBLISHED: Final = 15_000_000
"""Bytes after which a publisher publishes nothing new: disks of tests are small."""

_UNSAFE: Final = 500
"""Commands that may wait for their acknowledgement."""

_PATIENCE: Final = (0.5, 3.0)
"""Seconds without an acknowledgement after which a publisher tries another instance."""

_NOT_STORED: Final = "not stored"

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

    What an instance does not store it sends again, with all that follows, and nothing new before
    it has left. Some of that may be in vain: when there is space again in the middle of what has
    been sent, the instance takes what comes then, and what it has refused before is out of order;
    also if the connection has ended meanwhile, and nobody has heard of that.

    Attributes:
        name: its client name.
        homes: the instances that it may go to.
        chance: decides what it does.
        sizes: of what its messages are padded with, in bytes.
        is_refused: whether an instance may refuse to store what it publishes.
        spells: by name of an instance, how often its disk became full or got space again.
        commands: all of them, in order; the n-th has number n + 1.
        acknowledged: up to which of them all is safe.
        refused: how often something was not stored.
        passed_over: the numbers of those that were, or may have been, and of which a later one may
            have been stored.
        failures: what went wrong on its thread.
    """

    name: str
    homes: Sequence[Instance]
    chance: random.Random
    sizes: Sequence[int] = SIZES
    is_refused: bool = False
    spells: Mapping[str, int] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    passed_over: set[int] = field(default_factory=set)
    failures: list[AssertionError] = field(default_factory=list)
    _published: int = 0

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
        spells = self.spells.get(home.name, 0)
        try:
            with RawPeer(home.port) as peer:
                peer.send(
                    {"c": "logon", "cid": "1", "client_name": self.name, "mt": "json"}
                    | {"a": "processed", "o": "ack_conflation=10ms"}
                )
                while (ack := peer.receive(patience)[0])["a"] == "persisted":
                    assert self.is_refused, ack
                    assert (ack["status"], ack["reason"]) == ("failure", _NOT_STORED), ack
                    self.passed_over.add(ack["s"])  # others have been stored behind it
                assert ack["status"] == "success"
                self._work(peer, patience, stop)
        except (OSError, EOFError):  # it is down, or does not answer
            time.sleep(0.02)
        if spells % 2 or self.spells.get(home.name, 0) != spells:  # it was full for a while
            self.passed_over.update(self._unsafe)

    def _work(self, peer: RawPeer, patience: float, stop: threading.Event) -> None:
        # From a random place: what the instance has already, it must not take twice.
        start = self.chance.randint(max(self.acknowledged - 30, 0), self.acknowledged)
        peer.socket.sendall(b"".join(command.frame for command in self.commands[start:]))
        leaves, heard = time.monotonic() + self.chance.uniform(0.2, 5), time.monotonic()
        refused: set[int] = set()
        before = self.acknowledged
        try:
            while not (stop.is_set() and self.is_safe):
                if not (stop.is_set() or refused or self._has_enough):
                    peer.socket.sendall(b"".join(self._some()))
                if self._take_ack(peer, refused):
                    heard = time.monotonic()
                elif not self.is_safe and time.monotonic() - heard > patience:
                    return
                if time.monotonic() > leaves or refused.issuperset(self._unsafe):
                    return
        finally:
            self.refused += len(refused)
            last = max((one for one in self._unsafe if one not in refused), default=0)
            last = max(last, self.acknowledged)
            self.passed_over.update(one for one in refused if before < one < last)

    @property
    def required(self) -> set[int]:
        """The numbers of the messages that every instance has to have."""
        numbers = (n for n, one in enumerate(self.commands, 1) if one.kind != "sow_delete")
        return set(numbers) - self.passed_over

    @property
    def _unsafe(self) -> range:
        """The numbers of what has not been acknowledged."""
        return range(self.acknowledged + 1, len(self.commands) + 1)

    @property
    def _has_enough(self) -> bool:
        """Whether nothing new is to be published for the time being."""
        return len(self._unsafe) >= _UNSAFE or self._published >= _MAX_PUBLISHED

    def _take_ack(self, peer: RawPeer, refused: set[int]) -> bool:
        """Take an ack, if there is one: of what is safe, or of what has been refused."""
        try:
            ack = peer.receive(0.005)[0]
        except TimeoutError:
            return False
        assert ack["a"] == "persisted", ack
        if self.is_refused and ack.get("reason") == _NOT_STORED:
            assert ack["status"] == "failure", ack
            refused.add(ack["s"])
            return True
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
            message["pad"] = "x" * self.chance.choice(self.sizes)
        header = {"c": "publish" if kind == "event" else kind, "t": topic, "s": number}
        body = json.dumps(message or {"id": key}).encode()
        command = Command(
            kind,
            "" if kind == "event" else key,
            message,
            frame(header | {"a": "persisted"}, body),
        )
        self.commands.append(command)
        self._published += len(command.frame)
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

    def missing(self, log: Sequence[Logged]) -> int:
        """How many of the messages a log lacks that have to be there."""
        found = {one.bookmark for one in log}
        required = (f"{client_hash(e.name)}|{n}|" for e in self.publishers for n in e.required)
        return sum(bookmark not in found for bookmark in required)

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
            doubtful = {key for each in written.values() for key in each.doubtful}
            expected = {
                key: value
                for each in written.values()
                for key, value in each.records.items()
                if key not in doubtful
            }
            with server.log_on("auditor") as peer:
                records = {record["id"]: record for record in query(peer, "orders").messages}
            found = {key: value for key, value in records.items() if key not in doubtful}
            assert found == expected, f"{name} has other records"


class _Written:
    """What of one publisher is in the log of an instance.

    Attributes:
        publisher: the publisher.
        records: what its keys are, as far as it is known.
        doubtful: keys of which that is not known: some of their commands were passed over. An
            instance may have these, and have them late; then they bring back what was deleted.
    """

    def __init__(self, publisher: MovingPublisher) -> None:
        self.publisher = publisher
        self.records: Records = {}
        self.doubtful: set[str] = set()
        self._passed_over: set[str] = set()
        self._numbers: set[int] = set()
        self._done = 0

    def take(self, name: str, one: Logged, message: dict[str, Any], keeps_order: bool) -> None:
        """See that a message is what was published, and where it belongs."""
        number = one.number
        command = self.publisher.commands[number - 1]
        assert message["n"] == number, f"{name} has {message} as number {number}"
        self._numbers.add(number)
        if not keeps_order or number in self.publisher.passed_over:
            return
        assert number > self._done, f"{name} has number {number} behind {self._done}"
        self._apply(number - 1)
        if command.kind == "delta_publish" and command.key in self.doubtful:
            self.records[command.key] = message  # it was merged with what there was
            self.doubtful.discard(command.key)
            self._done = number
            return
        expected = self._apply(number)
        assert message == expected, f"{name} has {message} for {command}, expected {expected}"

    def finish(self, name: str) -> None:
        """See that nothing is missing."""
        missing = sorted(self.publisher.required - self._numbers)
        assert not missing, f"{name} lacks {len(missing)} of {self.publisher.name}: {missing[:9]}"
        self._apply(len(self.publisher.commands))

    def _apply(self, number: int) -> dict[str, Any]:
        """Carry out all commands up to one; gives the message that it came to."""
        message: dict[str, Any] = {}
        for position in range(self._done, number):
            command = self.publisher.commands[position]
            message = command.message
            if position + 1 in self.publisher.passed_over:
                self.doubtful.add(command.key)
                self._passed_over.add(command.key)
            elif command.kind == "sow_delete":
                self.records.pop(command.key, None)
                if command.key in self._passed_over:
                    self.doubtful.add(command.key)
            elif command.key:
                if command.kind == "delta_publish":
                    message = self.records.get(command.key, {}) | message
                else:
                    self.doubtful.discard(command.key)
                self.records[command.key] = message
        self._done = number
        return message
