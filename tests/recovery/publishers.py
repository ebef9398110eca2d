"""Publishers that do anything at random, and remember what they did.

Each has keys of its own, so that the order of its commands says what its records are. `shared` is
the exception: whoever's command comes first in the log was first.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer

JOURNALED: Final = "^(orders|quotes|notes|shared|dated|enriched|desk/.*|events/.*)$"
RECORDS: Final = (
    "orders",
    "quotes",
    "notes",
    "shared",
    "dated",
    "enriched",
    "desk/a",
    "desk/b",
    "desk/c",
)
ENRICHED: Final = "enriched"
"""A topic that has `/n + 1` as `/next`."""
COMPACT: Final = "compact"
"""A topic that is not in the log; what is published there has the SOW files compacted."""

_KEYS: Final = 20
_SIZES: Final = (1, 1, 30, 300, 1500)
_LARGE: Final = 40_000
_PATIENCE: Final = 60.0
"""Seconds that something which has to come may take on a busy machine."""


@dataclass(frozen=True)
class Command:
    """What a publisher has asked for.

    Attributes:
        kind: `publish`, `delta_publish` or `sow_delete`.
        topic: where.
        key: of the record concerned.
        message: what was published, empty for a deletion.
        header: the command's header.
        correlation: the correlation id, if it had one.
    """

    kind: str
    topic: str
    key: str
    message: dict[str, Any]
    header: dict[str, Any]
    correlation: str | None = None

    @property
    def frame(self) -> bytes:
        """As bytes for the server."""
        body = json.dumps(self.message).encode() if self.message else b""
        if self.kind == "sow_delete" and "sow_keys" not in self.header and "f" not in self.header:
            body = json.dumps({"id": self.key}).encode()
        return frame(self.header, body)


@dataclass
class Publisher:
    """A publisher with a publish store, or one that neither numbers nor repeats its commands.

    Attributes:
        name: its client name.
        chance: decides what it does.
        numbered: whether its commands have sequence numbers.
        commands: every command that counts, in order; the n-th has number n + 1.
        acknowledged: up to which of them all is safe.
        failures: what went wrong on its thread.
    """

    name: str
    chance: random.Random
    numbered: bool = True
    commands: list[Command] = field(default_factory=list)
    acknowledged: int = 0
    failures: list[AssertionError] = field(default_factory=list)

    def run(self, server: RunningServer, stop: threading.Event) -> None:
        """Send again what is not safe, then go on until told to stop or the server is gone."""
        try:
            with server.connect() as peer:
                self._log_on(peer)
                self._work(peer, stop)
        except TimeoutError:
            self.failures.append(AssertionError("the server neither answers nor is gone"))
        except (OSError, EOFError):
            pass  # killed
        except AssertionError as error:
            self.failures.append(error)

    def last_sequence(self, server: RunningServer) -> int:
        """What the server says at the logon about how far it knows this publisher."""
        with server.connect() as peer:
            return self._log_on(peer)

    def _log_on(self, peer: RawPeer) -> int:
        logon = {"c": "logon", "cid": "1", "client_name": self.name, "mt": "json"}
        ack = peer.ask(logon | {"a": "processed", "o": "ack_conflation=10ms"})
        assert ack["status"] == "success", ack
        last: int = ack["s"]
        return last

    def _work(self, peer: RawPeer, stop: threading.Event) -> None:
        if self.numbered:
            # From a random place: what the server has already, it must not take twice.
            start = self.chance.randint(max(self.acknowledged - 30, 0), self.acknowledged)
            peer.socket.sendall(b"".join(command.frame for command in self.commands[start:]))
        while not stop.is_set():
            peer.socket.sendall(b"".join(self._some()))
            self._take_acks(peer, 0.004)
        while self.acknowledged < len(self.commands):
            assert self._take_acks(peer, _PATIENCE), "no persisted ack has come"

    def _take_acks(self, peer: RawPeer, wait: float) -> bool:
        try:
            ack = peer.receive(wait)[0]
        except TimeoutError:
            return False
        assert ack["a"] == "persisted", ack
        assert ack["status"] == "success" or ack["reason"] == "duplicate", ack
        number = ack["s"] if self.numbered else int(ack["cid"])
        self.acknowledged = max(self.acknowledged, number)
        return True

    def _some(self) -> list[bytes]:
        """A few commands: all kinds mixed, or many that differ by their numbers only."""
        dice = self.chance.random()
        if dice < 0.02:
            return [frame({"c": "publish", "t": COMPACT}, b"{}")]
        if dice < 0.06:  # so that journal files become full
            return [self._publish("events/run", size=_LARGE).frame for _ in range(20)]
        if dice < 0.35:
            topic = self.chance.choice(("orders", "events/run", "quotes"))
            return [self._publish(topic).frame for _ in range(self.chance.randrange(1, 60))]
        return [self._any().frame for _ in range(self.chance.randrange(1, 30))]

    def _any(self) -> Command:
        topic = self.chance.choice((*RECORDS, "events/a", "events/b"))
        dice = self.chance.random()
        if topic in RECORDS and topic != "shared" and dice < 0.15:
            return self._delete(topic)
        if topic != "notes" and not topic.startswith("events") and dice < 0.4:
            return self._publish(topic, "delta_publish")
        return self._publish(topic, with_correlation=dice > 0.9)

    def _publish(
        self,
        topic: str,
        kind: str = "publish",
        *,
        size: int | None = None,
        with_correlation: bool = False,
    ) -> Command:
        number, key = len(self.commands) + 1, self._key(topic)
        message: dict[str, Any] = {"id": key, "by": self.name, "n": number}
        message[self.chance.choice("abc")] = self.chance.randrange(1000)
        message["pad"] = "x" * (size or self.chance.choice(_SIZES))
        header: dict[str, Any] = {"c": kind, "t": topic}
        if topic == "notes":
            header["k"] = key
        correlation = f"x{number}" if with_correlation else None
        if correlation is not None:
            header["x"] = correlation
        return self._add(kind, topic, key, message, header, correlation)

    def _delete(self, topic: str) -> Command:
        key = self._key(topic)
        header: dict[str, Any] = {"c": "sow_delete", "t": topic}
        if topic == "notes":
            header["sow_keys"] = f"{key},{self._key(topic)}-is-not-there"
        elif self.chance.random() < 0.7:
            header["f"] = f"/id = '{key}'"
        return self._add("sow_delete", topic, key, {}, header, None)

    def _key(self, topic: str) -> str:
        number = self.chance.randrange(3 if topic == "shared" else _KEYS)
        return f"{number}" if topic == "shared" else f"{self.name}-{number}"

    def _add(
        self,
        kind: str,
        topic: str,
        key: str,
        message: dict[str, Any],
        header: dict[str, Any],
        correlation: str | None,
    ) -> Command:
        number = len(self.commands) + 1
        header |= {"a": "persisted"} | ({"s": number} if self.numbered else {"cid": str(number)})
        command = Command(kind, topic, key, message, header, correlation)
        self.commands.append(command)
        return command


@dataclass
class Follower:
    """A subscriber that goes on where it stopped, whenever there is a server.

    Attributes:
        seen: bookmark and body of every message that it has been given, ever.
        failures: what went wrong on its thread.
    """

    seen: list[tuple[str, bytes]] = field(default_factory=list)
    failures: list[AssertionError] = field(default_factory=list)

    def run(self, server: RunningServer, until: threading.Event) -> None:
        """Read until told to stop or the server is gone."""
        try:
            with server.log_on("follower") as peer:
                self._subscribe(peer)
                while not until.is_set():
                    with suppress(TimeoutError):
                        self._read(peer, 0.05)
        except TimeoutError:
            self.failures.append(AssertionError("the server does not take a subscription"))
        except (OSError, EOFError):
            pass  # killed
        except AssertionError as error:
            self.failures.append(error)

    def catch_up(self, server: RunningServer, length: int) -> None:
        """Read until so many messages have been seen, ever."""
        with server.log_on("follower") as peer:
            self._subscribe(peer)
            while len(self.seen) < length:
                self._read(peer, _PATIENCE)

    def _subscribe(self, peer: RawPeer) -> None:
        bookmark = self.seen[-1][0] if self.seen else "0"
        peer.send({"c": "subscribe", "sub_id": "f", "t": JOURNALED, "bm": bookmark})

    def _read(self, peer: RawPeer, wait: float) -> None:
        header, body = peer.receive(wait)
        assert header["c"] == "p", header
        self.seen.append((header["bm"], body))


def work(
    server: RunningServer,
    publishers: list[Publisher],
    follower: Follower,
    seconds: float,
    *,
    kill: bool,
) -> None:
    """Let all publishers work for some seconds, or until the server dies by itself.

    Args:
        server: for whom they work.
        publishers: who.
        follower: reads on the way.
        seconds: how long.
        kill: kill the server then; else everything is finished.
    """
    stop, until = threading.Event(), threading.Event()
    threads = [threading.Thread(target=one.run, args=(server, stop)) for one in publishers]
    reader = threading.Thread(target=follower.run, args=(server, until))
    for thread in (*threads, reader):
        thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.process.poll() is None:
        time.sleep(0.002)
    if kill:
        server.stop(signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join()
    until.set()
    reader.join()
    for failure in [
        *follower.failures,
        *(failure for one in publishers for failure in one.failures),
    ]:
        raise failure
