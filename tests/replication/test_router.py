"""Words find their way over instances in between, come once, and tell who can be reached."""

from __future__ import annotations

import pytest

from server.replication.core import MAX_PEER_MESSAGE_SIZE, MeshRouter, PeerMessage, RoutedMessage

SECOND = 1_000_000


class Net:
    """Instances, the links between them, and what has come."""

    def __init__(self, *links: str) -> None:
        self.couriers = {name: MeshRouter(name) for link in links for name in link}
        self.told: list[tuple[str, str, str, bytes]] = []
        self.carried = 0
        self.now = 0
        for link in links:
            self.connect(link)

    def connect(self, link: str) -> None:
        one, other = tuple(link)
        self.couriers[one].add_peer(other)
        self.couriers[other].add_peer(one)

    def cut(self, link: str) -> None:
        one, other = tuple(link)
        self.couriers[one].remove_peer(other)
        self.couriers[other].remove_peer(one)

    def say(self, sender: str, to: str, body: bytes = b"hello") -> None:
        self.carry(sender, self.couriers[sender].route_message(to, "queue", body))

    def carry(self, source: str, parcels: list[RoutedMessage]) -> None:
        for peer, word in parcels:
            self.carried += 1
            received = self.couriers[peer].receive_message(word, source, self.now)
            if received.sender:
                self.told.append((peer, word.to, received.sender, word.body))
            self.carry(peer, received.messages)

    def later(self, seconds: float) -> None:
        """Let time pass, in which everybody asks who is there."""
        for _ in range(round(seconds * 2)):
            self.now += SECOND // 2
            for name, router in self.couriers.items():
                self.carry(name, router.make_probes(self.now))

    def reach(self, one: str, other: str) -> bool | None:
        return self.couriers[one].is_reachable(other, self.now)


@pytest.mark.parametrize("links", [("AB",), ("AB", "BC"), ("AB", "BC", "CD", "DA", "AC", "BD")])
def test_a_word_comes_once(links: tuple[str, ...]) -> None:
    net = Net(*links)
    last = max(net.couriers)
    net.say("A", last)
    net.say(last, "A", b"yes")
    assert net.told == [(last, last, "A", b"hello"), ("A", "A", last, b"yes")]
    assert net.carried <= 4


def test_nobody_passes_a_word_on_twice() -> None:
    net = Net("AB", "BC", "CA", "CD", "DB")
    net.say("A", "nobody")
    assert net.told == []
    assert net.carried < 12


def test_what_cannot_have_come_this_way_is_dropped() -> None:
    net = Net("AB", "BC")
    router = net.couriers["B"]
    cases = [
        PeerMessage("C", [], 1, "queue", b""),
        PeerMessage("C", ["A", "B"], 2, "queue", b""),
        PeerMessage("C", ["X"], 3, "queue", b""),
        PeerMessage("C", [*(str(number) for number in range(40)), "A"], 4, "queue", b""),
        PeerMessage("C", ["A"], 5, "queue", bytes(MAX_PEER_MESSAGE_SIZE + 1)),
    ]
    for word in cases:
        assert router.receive_message(word, "A", 0) == ([], ""), word
    word = PeerMessage("C", ["A"], 6, "queue", b"")
    assert [peer for peer, _ in router.receive_message(word, "A", 0).messages] == ["C"]
    assert router.receive_message(word, "A", 0).messages == []


def test_who_can_be_reached_is_found_out() -> None:
    net = Net("AB", "BC", "CD")
    assert net.reach("A", "B") is True
    assert net.reach("A", "D") is None
    net.later(1)
    assert net.reach("A", "D") is True
    net.cut("CD")
    assert net.reach("A", "D") is True, "it has been heard a moment ago"
    net.later(5)
    assert net.reach("A", "D") is None
    net.later(2.5)
    assert net.reach("A", "D") is False
    net.connect("CD")
    net.later(1.5)
    assert net.reach("A", "D") is True
    net.cut("AB")
    assert net.reach("A", "B") is False, "there is no link at all"


def test_a_word_for_one_that_is_gone_is_told_on_its_way() -> None:
    net = Net("AB", "BC")
    net.cut("BC")
    assert net.reach("B", "C") is None
    net.later(3)
    net.say("A", "C")
    assert net.told == [("B", "C", "A", b"hello")]
