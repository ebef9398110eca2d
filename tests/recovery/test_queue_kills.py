"""A server with queues is killed at random moments of random work, again and again.

    nothing acknowledged comes back        an acknowledgement counts when its persisted ack is there
    nothing unacknowledged is gone         a message counts when its persisted ack is there
    at-most-once never repeats             whoever it was sent to

What is not known is neither: what was on its way when the server was killed. See killing.py for how
it is killed.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.recovery.killing import live_and_die, until_killed
from tests.support.chances import chance_of
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <MaxPerSubscriptionBacklog>1000000</MaxPerSubscriptionBacklog>
    <DeferredAckExpiration>30d</DeferredAckExpiration>
  </Queue>
  <Queue>
    <Name>even</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <Filter>/n % 2 = 0</Filter><Priority>/n % 5</Priority>
    <MaxPerSubscriptionBacklog>1000000</MaxPerSubscriptionBacklog>
    <DeferredAckExpiration>30d</DeferredAckExpiration>
  </Queue>
  <Queue>
    <Name>once</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <Semantics>at-most-once</Semantics>
    <MaxPerSubscriptionBacklog>1000000</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <FlushInterval>{flush}</FlushInterval>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
ALL: Final = "1000000"
"""A backlog for everything there is."""

_PATIENCE: Final = 20.0


@dataclass
class Consumed:
    """What is known of a queue.

    Attributes:
        name: of the queue.
        step: it takes every message whose number this divides.
        gone: numbers of messages whose acknowledgements are safe.
        asked: numbers of messages that were acknowledged, safely or not.
        had: numbers of messages that have been delivered and not acknowledged.
        pending: acknowledgements on their way: the messages of each, by command id.
        commands: how many acknowledgements there have been.
    """

    name: str
    step: int
    gone: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    had: set[int] = field(default_factory=set)
    pending: dict[str, list[int]] = field(default_factory=dict)
    commands: int = 0

    def came(self, number: int) -> None:
        """A message has been delivered."""
        assert number not in self.gone, f"{self.name}: message {number} was acknowledged"
        assert number % self.step == 0, f"{self.name}: message {number} is not for this queue"
        self.had.add(number)

    def acknowledge(self, peer: RawPeer, numbers: list[int], mark: int) -> None:
        """Acknowledge messages, which may be still to come."""
        self.commands += 1
        name = f"{self.name}-{self.commands}"
        self.pending[name] = numbers
        self.asked.update(numbers)
        self.had.difference_update(numbers)
        self._say(peer, numbers, mark, cid=name, a="persisted")

    def give_back(self, peer: RawPeer, numbers: list[int], mark: int) -> None:
        """Cancel messages: they are delivered again."""
        self.had.difference_update(numbers)
        self._say(peer, numbers, mark, o="cancel")

    def _say(self, peer: RawPeer, numbers: list[int], mark: int, **keys: str) -> None:
        marks = ",".join(f"{mark}|{number}|" for number in numbers)
        peer.send({"c": "sow_delete", "t": self.name, "bm": marks} | keys)

    def is_left(self, published: int) -> set[int]:
        """Messages that must be in the queue: nobody has ever acknowledged them."""
        return set(range(self.step, published + 1, self.step)) - self.asked

    def interrupt(self) -> None:
        """The connection is gone: nobody will learn what became of acknowledgements."""
        self.pending.clear()
        self.had.clear()


class World:
    """A publisher with a store, which consumes as well, and what has come of it all.

    It is one connection, so that what it sends and what it gets are each in one order.

    Args:
        chance: decides what is done.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance: Final = chance
        self._queues = {name: Consumed(name, step) for name, step in (("jobs", 1), ("even", 2))}
        self._once: set[int] = set()
        self._published = 0
        self._safe = 0
        self._mark = 0  # what stands for the publisher in bookmarks, once it has been seen

    def check(self, server: RunningServer) -> None:
        """Everything that must be in the queues is delivered, and nothing that must not."""
        with self._connected(server) as peer:
            self._wait(peer, lambda: self._safe == self._published)
            for name in (*self._queues, "once"):
                self._subscribe(peer, name, name, ALL)
            self._publish(peer, 2)  # what is there comes before what is new
            queues = self._queues.values()
            self._wait(peer, lambda: all(one.had >= one.is_left(self._published) for one in queues))

    def work(self, server: RunningServer) -> None:
        """Do anything until the server is gone."""
        with suppress(OSError, EOFError), self._connected(server) as peer:
            for name in (*self._queues, "once"):
                for part in range(self.chance.randrange(1, 4)):
                    self._subscribe(
                        peer, name, f"{name}-{part}", self.chance.choice(("1", "20", ALL))
                    )
            while True:
                self._do_something(peer)
                with suppress(TimeoutError):
                    while True:
                        self._take(peer, 0.002)

    def drain(self, server: RunningServer) -> None:
        """Acknowledge all that there is."""
        with self._connected(server) as peer:
            for name in self._queues:
                self._subscribe(peer, name, name, "100")
            for queue in self._queues.values():
                while queue.is_left(self._published) or queue.pending:
                    if queue.had:
                        queue.acknowledge(peer, sorted(queue.had), self._mark)
                    self._take(peer, _PATIENCE)

    @contextmanager
    def _connected(self, server: RunningServer) -> Iterator[RawPeer]:
        try:
            with server.connect() as peer:
                logon = {"c": "logon", "cid": "1", "client_name": "world", "mt": "json"}
                ack = peer.ask(logon | {"a": "processed", "o": "ack_conflation=10ms"})
                assert self._safe <= ack["s"] <= self._published, "a message is lost"
                self._send(peer, range(max(self._safe - 20, 0) + 1, self._published + 1))
                yield peer
        except TimeoutError:
            raise AssertionError(f"what has to come does not come: {self._state()}") from None
        finally:
            for queue in self._queues.values():
                queue.interrupt()

    def _state(self) -> str:
        missing = [
            f"{len(left)} of {queue.name} missing ({sorted(left)[:9]})"
            for queue in self._queues.values()
            if (left := queue.is_left(self._published) - queue.had)
        ]
        return f"{self._safe} of {self._published} are safe; {'; '.join(missing)}"

    def _subscribe(self, peer: RawPeer, name: str, sub_id: str, backlog: str) -> None:
        options = f"max_backlog={backlog}"
        peer.send({"c": "subscribe", "sub_id": sub_id, "t": name, "o": options})

    def _publish(self, peer: RawPeer, count: int) -> None:
        self._published += count
        self._send(peer, range(self._published - count + 1, self._published + 1))

    def _send(self, peer: RawPeer, numbers: Iterable[int]) -> None:
        with peer.at_once():
            for number in numbers:
                body = json.dumps({"n": number, "pad": "x" * (number % 7 * 50)}).encode()
                peer.publish("work", body, s=number, a="persisted")

    def _do_something(self, peer: RawPeer) -> None:
        queue = self.chance.choice(list(self._queues.values()))
        some = [number for number in sorted(queue.had) if self.chance.random() < 0.6]
        dice = self.chance.random()
        if dice < 0.4 or not self._mark:
            self._publish(peer, self.chance.randrange(1, 40))
        elif dice < 0.5:
            first = self._published // 2 * 2 + 2
            early = range(first, first + 2 * self.chance.randrange(1, 20), 2)
            queue.acknowledge(peer, list(early), self._mark)
        elif dice < 0.6 and some:
            queue.give_back(peer, some, self._mark)
        elif some:
            queue.acknowledge(peer, some, self._mark)

    def _wait(self, peer: RawPeer, condition: Callable[[], bool]) -> None:
        while not condition():
            self._take(peer, _PATIENCE)

    def _take(self, peer: RawPeer, wait: float) -> None:
        """Take what comes.

        Raises:
            TimeoutError: nothing.
        """
        header, body = peer.receive(wait)
        if header["c"] == "ack":
            self._take_ack(header)
            return
        self._mark = int(header["bm"].split("|")[0])
        number, name = json.loads(body)["n"], header["t"]
        if name in self._queues:
            self._queues[name].came(number)
        else:
            assert number not in self._once, f"{name}: message {number} has been sent before"
            self._once.add(number)

    def _take_ack(self, ack: dict[str, Any]) -> None:
        assert ack["status"] == "success" or ack["reason"] == "duplicate", ack
        for queue in self._queues.values():
            if ack.get("cid") in queue.pending:
                queue.gone.update(queue.pending.pop(ack["cid"]))
                return
        self._safe = max(self._safe, ack["s"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_queues_keep_their_promises(tmp_path: Path, log_number: int, kills: int) -> None:
    """See above."""
    chance = chance_of(log_number)
    world = World(chance)
    work = until_killed(chance, world.work)
    live_and_die(tmp_path, log_number, kills, chance, ELEMENTS, world.check, work)
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
            world.check(server)
            world.drain(server)
            server.stop(how)
