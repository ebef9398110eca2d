"""A server that publishes dead letters, and redrives them, is killed at random moments.

    nothing is lost       a message is in its queue, or its letter is in the queue of dead letters
    nothing is doubled    a message that has expired has one letter, and does not come back
    nobody is concerned   another queue over the same topic has every message once

A message that is redriven is a new one. See killing.py for how the server is killed.
"""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import pytest

from tests.recovery.killing import live_and_die, until_killed
from tests.support.chances import chance_of
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query
from tests.support.waiting import comes_true

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
    <DeadLetterTopic>dead</DeadLetterTopic>
    <MaxPerSubscriptionBacklog>1000000</MaxPerSubscriptionBacklog>
  </Queue>
  <Queue><Name>dead</Name><MessageType>json</MessageType></Queue>
  <Queue>
    <Name>beside</Name><MessageType>json</MessageType><UnderlyingTopic>work</UnderlyingTopic>
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


class World:
    """A publisher with a store, which gives messages up as well.

    Args:
        chance: decides what is done.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance: Final = chance
        self._published = 0

    def check(self, server: RunningServer) -> None:
        """Everything is where it has to be, now or soon."""
        everything = set(range(1, self._published + 1))
        with self._connected(server) as peer:
            assert comes_true(lambda: self._numbers(peer, "jobs", "dead").keys() == everything)
            assert self._numbers(peer, "beside") == Counter(everything)
            letters = self._letters(peer)
            assert set(letters.values()) <= {1}, "a message has more than one dead letter"
            assert letters.keys().isdisjoint(self._bookmarks(peer))

    def _numbers(self, peer: RawPeer, *queues: str) -> Counter[int]:
        """How often each message is in some queues."""
        return Counter(message["n"] for queue in queues for message in query(peer, queue).messages)

    def _bookmarks(self, peer: RawPeer) -> list[str]:
        """The bookmarks of the messages in the queue, which nobody has."""
        count = self._numbers(peer, "jobs").total()
        peer.subscribe("jobs", "jobs", o="max_backlog=1000000")
        bookmarks = [peer.receive()[0]["bm"] for _ in range(count)]
        peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "jobs", "a": "processed"})
        return bookmarks

    def _letters(self, peer: RawPeer) -> Counter[str]:
        """How many letters there have been of each message, by its bookmark."""
        peer.subscribe("dead", "letters", bm="0", a="processed,completed")
        letters = Counter[str]()
        while True:
            header, _ = peer.receive()
            if header["c"] == "ack":
                peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "letters", "a": "processed"})
                return letters
            letters[parse_qs(header["x"])["bookmark"][0]] += 1

    def work(self, server: RunningServer) -> None:
        """Publish messages, give some up and get some back, until the server is gone."""
        chance = self.chance
        with suppress(OSError, EOFError, TimeoutError), self._connected(server) as peer:
            while True:
                first = self._published + 1
                self._published += chance.randrange(1, 400)  # so that letters take several slices
                self._send(peer, range(first, self._published + 1))
                for queue, how in (("jobs", "expire"), ("dead", "redrive")):
                    which = f"/n % {chance.randrange(2, 5)} = 1"
                    header = {"c": "sow_delete", "cid": "d", "t": queue, "filter": which, "o": how}
                    peer.ask(header | {"a": "completed"})

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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_message_has_its_place(tmp_path: Path, log_number: int, kills: int) -> None:
    """See above."""
    chance = chance_of(log_number)
    world = World(chance)
    work = until_killed(chance, world.work)
    live_and_die(tmp_path, log_number, kills, chance, ELEMENTS, world.check, work)
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
            world.check(server)
            server.stop(how)
