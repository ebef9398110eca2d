"""A server that publishes dead letters is killed at random moments, again and again.

Every message is in the queue, or has one dead letter: none is lost, and none is doubled. See
killing.py for how it is killed.
"""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Final

import pytest

from tests.recovery.killing import chance_of, live_and_die, number_of_logs
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query
from tests.support.waiting import comes_true

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <DeadLetterTopic>dead</DeadLetterTopic><MaxCancels>1</MaxCancels>
    <MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <FlushInterval>{flush}</FlushInterval>
  <Topic><Name>^(work|dead)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many logs as it takes."""
    metafunc.parametrize("log", range(number_of_logs(metafunc.config)))


class World:
    """A publisher with a store, and a client that gives messages up.

    Args:
        chance: decides what is done.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance: Final = chance
        self._published = 0

    def check(self, server: RunningServer) -> None:
        """Every message is in the queue, or has one letter."""
        with self._connected(server) as peer:
            assert comes_true(lambda: self._places(peer) == set(range(1, self._published + 1)))

    def _places(self, peer: RawPeer) -> set[int]:
        """The messages that are in one place."""
        found = Counter(message["n"] for message in query(peer, "jobs").messages)
        letters = Counter(self._letters(peer))
        twice = [number for number, count in letters.items() if count > 1]
        assert not twice, f"messages {twice} have more than one dead letter"
        found.update(letters)
        return {number for number, count in found.items() if count == 1}

    def _letters(self, peer: RawPeer) -> list[int]:
        peer.subscribe("dead", "letters", bm="0", a="processed,completed")
        numbers: list[int] = []
        while True:
            header, body = peer.receive()
            if header["c"] == "ack":
                peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "letters", "a": "processed"})
                return numbers
            numbers.append(json.loads(body)["n"])

    def work(self, server: RunningServer) -> None:
        """Publish messages and give some up, until the server is gone."""
        chance = self.chance
        with suppress(OSError, EOFError, TimeoutError), self._connected(server) as peer:
            while True:
                first = self._published + 1
                self._published += chance.randrange(1, 400)  # so that letters take several slices
                self._send(peer, range(first, self._published + 1))
                which = f"/n % {chance.randrange(2, 5)} = 1"
                peer.ask(
                    {"c": "sow_delete", "cid": "d", "t": "jobs", "filter": which}
                    | {"o": "expire", "a": "completed"}
                )

    def _connected(self, server: RunningServer) -> RawPeer:
        """A connection, over which what may not be there has been published again."""
        peer = server.connect()
        logon = {"c": "logon", "cid": "1", "client_name": "world", "mt": "json"}
        ack = peer.ask(logon | {"a": "processed"})
        self._send(peer, range(ack["s"] + 1, self._published + 1))
        peer.flush()
        return peer

    def _send(self, peer: RawPeer, numbers: range) -> None:
        with peer.at_once():
            for number in numbers:
                body = json.dumps({"n": number, "pad": "x" * (number % 7 * 50)}).encode()
                peer.publish("work", body, s=number)


@pytest.mark.timeout(600)
def test_every_message_has_its_place(tmp_path: Path, log: int) -> None:
    """See above."""
    chance = chance_of(log)
    world = World(chance)

    def work_until_killed(server: RunningServer) -> None:
        killer = Timer(chance.uniform(0.02, 0.4), server.stop, (signal.SIGKILL,))
        killer.start()
        world.work(server)
        killer.join()

    live_and_die(tmp_path, log, chance, ELEMENTS, world.check, work_until_killed)
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
            world.check(server)
            server.stop(how)
