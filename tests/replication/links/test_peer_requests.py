"""Instances that are asked for what is missing do not always hear it, or are not heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from server.replication.links.link_peer import LinkPeer
from server.replication.links.registry import LinkRegistry
from server.replication.repair.peer_requests import PeerRequest, PeerRequester
from server.storage.journal import JournalTopic
from tests.engine.support import SimulatedClock


class There(LinkRegistry):
    """Instances that there are links with."""

    peers: Mapping[str, LinkPeer] = {}

    def __init__(self, *names: str) -> None:
        self.peers = dict.fromkeys(names, cast("LinkPeer", None))

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Nothing changes."""
        return lambda: None

    def register_handler(self, subject: str, handler: Callable[[str, bytes], None]) -> None:
        """Nobody says anything."""

    def send_message(self, to: str, subject: str, body: bytes) -> None:
        """Nobody hears it."""

    def may_receive(
        self, peer: str, topic: JournalTopic, path: str, body: bytes | None = None
    ) -> bool:
        """Nobody asks."""
        return False

    def log_refused_request(self, peer: str, topic: JournalTopic) -> None:
        """Nobody asks."""


class Questions:
    """What is asked for, and what of whom."""

    def __init__(self, *names: str) -> None:
        self.clock = SimulatedClock()
        self.asked: list[tuple[str, str]] = []
        self.there = There(*names)
        self.asking: PeerRequester[str] = PeerRequester(
            self.there, self.clock, self._ask, self._ask, lambda: None
        )

    def _ask(self, asked: PeerRequest[str]) -> None:
        self.asked.append((asked.item, asked.peer))

    def want(self, *things: str) -> None:
        for key, thing in enumerate(things):
            self.asking.add_item(key, thing)
        self.asking.request_next()

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)


def test_who_does_not_answer_is_asked_again_and_then_the_next() -> None:
    questions = Questions("B", "C")
    questions.want("bread")
    questions.pass_seconds(10)
    assert questions.asked == [("bread", "B")] * 4
    questions.pass_seconds(11)
    assert questions.asked == [("bread", "B")] * 4 + [("bread", "C")] * 4
    assert not questions.asking.is_given_up(0)
    questions.pass_seconds(5)
    assert questions.asked == [("bread", "B")] * 4 + [("bread", "C")] * 4
    assert questions.asking.is_given_up(0)


def test_a_peer_that_is_sending_is_not_asked_again() -> None:
    questions = Questions("B")
    questions.want("bread", "wine")
    for _ in range(5):
        questions.pass_seconds(1)
        questions.asking.extend_timeout()
    assert questions.asked == [("bread", "B")]
    questions.asking.finish_request()
    assert questions.asked == [("bread", "B"), ("wine", "B")]


def test_an_item_under_repair_is_not_requested_though_a_link_is_made_anew() -> None:
    questions = Questions("B")
    questions.want("bread")
    questions.asking.start_repair()
    questions.there.peers = {}
    questions.asking.update_peers()
    questions.there.peers = dict.fromkeys("B", cast("LinkPeer", None))
    questions.asking.update_peers()
    questions.pass_seconds(20)
    assert questions.asked == [("bread", "B")]
    assert not questions.asking.is_given_up(0)
    questions.asking.end_repair(0)  # what arrived did not fit: it is tried again
    questions.asking.update_peers()
    questions.asking.request_next()
    assert questions.asked == [("bread", "B")] * 2
