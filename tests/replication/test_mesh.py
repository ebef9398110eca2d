"""What instances tell of one another comes to all, whatever the mesh is like; liars get nowhere."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import msgspec
import pytest

from server.replication.core.mesh import (
    MAX_INSTANCES,
    MAX_REPORT_TEXT_LENGTH,
    REPORT_LIFETIME_US,
    LinkReport,
    Mesh,
    MeshReport,
    Neighbour,
)
from server.replication.core.router import MAX_PEER_MESSAGE_SIZE
from tests.support.long_form import ONLY_LONG

SECOND = 1_000_000


class Net:
    """Instances, their links, and what is said over these.

    Attributes:
        words: how many have been said.
        bytes: how long these were.
    """

    def __init__(self, *links: tuple[str, str], losing: float = 0.0) -> None:
        self.now = 0
        self.links = {frozenset(link) for link in links}
        self.meshes: dict[str, Mesh] = {}
        self.words = self.bytes = 0
        self._losing = losing
        self._random = random.Random(3)
        for name in sorted({name for link in links for name in link}):
            self.start(name)

    def start(self, name: str) -> None:
        """Start an instance, or start it anew."""
        self.meshes[name] = Mesh(name, self._random.getrandbits(60))

    def neighbours(self, name: str) -> list[str]:
        return sorted(
            other
            for link in self.links
            if name in link
            for other in link - {name}
            if other in self.meshes
        )

    def cut(self, one: str, other: str) -> None:
        self.links.discard(frozenset((one, other)))

    def kill(self, name: str) -> None:
        del self.meshes[name]

    def later(self, seconds: float = 1) -> None:
        """Let time pass."""
        for _ in range(round(seconds)):
            self.now += SECOND
            for name, mesh in list(self.meshes.items()):
                mesh.remove_expired(self.now)
                if mesh.is_report_due(self.now):
                    others = self.neighbours(name)
                    mesh.replace_own_report(report(name, *others), self.now)
                    for other in others:
                        self._carry(name, other, mesh.make_offers())

    def _carry(self, sender: str, to: str, words: list[bytes]) -> None:
        for word in words:
            self.words += 1
            self.bytes += len(word)
            assert len(word) <= MAX_PEER_MESSAGE_SIZE
            if self._random.random() >= self._losing:
                self._carry(to, sender, self.meshes[to].receive_message(sender, word, self.now))

    def knows(self, name: str) -> set[str]:
        """Of whom an instance has a report."""
        return {name, *self.meshes[name].peer_reports}

    def reaches(self, name: str) -> set[str]:
        return set(self.meshes[name].reachable_instances())


def report(name: str, *neighbours: str, links: int = 1) -> MeshReport:
    """What an instance says that is called so."""
    link = LinkReport("d", "p", "g", "sync", True, "replicating", 0, 0, 0, 0, 0, "")
    there = [Neighbour(one, one, f"{one}:8085", False, True) for one in neighbours]
    return MeshReport(name, 0, 0, name, "", False, there, [link] * links)


def chain(length: int) -> list[tuple[str, str]]:
    return list(pairwise(f"i{number:02}" for number in range(length)))


def ring(length: int) -> list[tuple[str, str]]:
    links = chain(length)
    return [*links, (links[-1][1], links[0][0])]


MESHES = {
    "pair": [("A", "B")],
    "chain of 3": chain(3),
    "ring of 3": ring(3),
    "ring of 50": ring(50),
    "hub with 50": [("hub", f"s{number}") for number in range(50)],
    "all of 12 with all": list(combinations("ABCDEFGHIJKL", 2)),
}


@pytest.mark.parametrize(
    "links",
    [
        pytest.param(links, id=name, marks=ONLY_LONG if name == "ring of 50" else ())
        for name, links in MESHES.items()
    ],
)
def test_everybody_hears_of_everybody(links: list[tuple[str, str]]) -> None:
    net = Net(*links)
    everybody = set(net.meshes)
    net.later(5 * len(links) if len(links) == len(everybody) else 30)
    for name in everybody:
        assert net.knows(name) == net.reaches(name) == everybody


@pytest.mark.parametrize("links", [chain(6), ring(9), MESHES["all of 12 with all"]])
def test_words_may_get_lost(links: list[tuple[str, str]]) -> None:
    net = Net(*links, losing=0.3)
    everybody = set(net.meshes)
    net.later(200)
    for name in everybody:
        assert net.knows(name) == net.reaches(name) == everybody


def test_a_report_comes_to_an_instance_about_once() -> None:
    """Also where all have links with all, so that a report could come 29 times."""
    names = [f"i{number:02}" for number in range(30)]
    net = Net(*combinations(names, 2))
    net.later(15)
    for name in names:
        assert net.knows(name) == set(names)
    net.words = net.bytes = 0
    size = len(msgspec.msgpack.encode(report(names[0], *names)))
    net.later(30)
    rounds = 30 / (29 / 10)
    to_all = 30 * 29 * rounds
    assert net.bytes < 2 * to_all * size
    assert net.words < 3.5 * to_all  # what there is, who wants it, and it


def test_who_is_down_stays_known_and_is_out_of_reach() -> None:
    net = Net(("A", "B"), ("B", "C"), ("C", "D"))
    net.later(20)
    assert net.reaches("A") == {"A", "B", "C", "D"}
    net.kill("C")
    net.later(5)
    assert net.knows("A") == {"A", "B", "C", "D"}
    assert net.reaches("A") == {"A", "B"}
    assert net.reaches("D") == {"D"}
    net.start("C")
    net.later(10)
    assert net.reaches("A") == net.reaches("D") == {"A", "B", "C", "D"}


def test_who_is_started_anew_is_heard_at_once() -> None:
    """Its reports begin with 1, and others remember a greater number."""
    net = Net(("A", "B"), ("B", "C"))
    net.later(1000)
    before = net.meshes["A"].peer_reports["C"]
    net.start("C")
    net.later(4)
    after = net.meshes["A"].peer_reports["C"]
    assert after.report.run != before.report.run
    assert after.report.number > before.report.number


def test_how_old_a_report_is_goes_with_it() -> None:
    net = Net(("A", "B"), ("B", "C"))
    net.later(10)
    net.kill("C")
    net.later(100)
    net.cut("A", "B")
    net.start("A")
    net.links.add(frozenset(("A", "B")))
    net.later(5)
    age = net.now - net.meshes["A"].peer_reports["C"].made_at_us
    assert 100 * SECOND <= age <= 110 * SECOND


def test_what_nobody_has_heard_of_for_a_day_is_forgotten_by_all() -> None:
    net = Net(("A", "B"), ("B", "C"), ("A", "C"), ("C", "D"))
    net.later(10)
    net.kill("D")
    net.now += REPORT_LIFETIME_US - 10 * SECOND
    net.later(1)
    assert "D" in net.knows("A")
    net.later(30)
    for name in "ABC":
        assert net.knows(name) == {"A", "B", "C"}


def tell(*reports: object, age: int = 0) -> bytes:
    return msgspec.msgpack.encode((3, [(age, one) for one in reports]))


LIES = {
    "no bytes": b"",
    "no word": b"\xc1" * 100,
    "deep": b"\x91" * 60_000,
    "another kind": msgspec.msgpack.encode((9, "later")),
    "no report": tell("report"),
    "a report of this instance": tell(msgspec.structs.replace(report("A", "X"), number=99)),
    "without a name": tell(msgspec.structs.replace(report(""), number=1)),
    "a name that is too long": tell(msgspec.structs.replace(report("x" * 256), number=1)),
    "a number that is too large": tell(msgspec.structs.replace(report("X"), number=1 << 60)),
    "too many links": tell(msgspec.structs.replace(report("X", links=257), number=1)),
    "as old as the hills": tell(msgspec.structs.replace(report("X"), number=1), age=1 << 62),
    "asks for what is not there": msgspec.msgpack.encode((2, ["X", "Y"] * 1000)),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_makes_no_sense_is_passed_over(lie: bytes) -> None:
    mesh = Mesh("A", 1)
    mesh.replace_own_report(report("A", "B"), 0)
    assert mesh.receive_message("B", lie, 0) == []
    assert mesh.peer_reports == {}
    assert set(mesh.reachable_instances()) == {"A", "B"}


@pytest.mark.parametrize(
    ("name", "neighbours", "is_believed"),
    [
        ("B", {"B", "C"}, True),
        ("C", {"B", "C"}, False),
        ("C", {"B"}, True),
    ],
)
def test_what_others_say_of_a_neighbour_is_not_believed(
    name: str, neighbours: set[str], is_believed: bool
) -> None:
    """It says that itself. Of those behind neighbours, these tell."""
    mesh = Mesh("A", 1)
    mesh.replace_own_report(report("A", "B", "C"), 0)
    have = msgspec.msgpack.encode((1, [(name, 1, 1 << 50)]))
    assert bool(mesh.receive_message("B", have, 0, neighbours)) is is_believed
    word = tell(msgspec.structs.replace(report(name), number=1 << 50))
    mesh.receive_message("B", word, 0, neighbours)
    assert (name in mesh.peer_reports) is is_believed


def test_a_number_that_is_too_large_keeps_nobody_from_being_heard() -> None:
    mesh, other = Mesh("A", 1), Mesh("B", 2)
    mesh.receive_message("B", msgspec.msgpack.encode((1, [("A", 7, 1 << 61)])), 0)
    mesh.replace_own_report(report("A", "B"), 0)
    [have] = mesh.make_offers()
    [want] = other.receive_message("A", have, 0)
    [told] = mesh.receive_message("B", want, 0)
    other.receive_message("A", told, 0)
    assert "A" in other.peer_reports


def test_somebody_who_asks_again_and_again_is_answered_once() -> None:
    mesh = Mesh("A", 1)
    mesh.replace_own_report(report("A", "B"), 0)
    want = msgspec.msgpack.encode((2, ["A"] * 5000))
    [told] = mesh.receive_message("B", want, 0)
    assert len(told) < 1000
    assert mesh.receive_message("B", want, 0) == []
    mesh.replace_own_report(report("A", "B"), SECOND)
    assert len(mesh.receive_message("B", want, SECOND)) == 1


def test_invented_instances_are_bounded_and_make_room_for_real_ones() -> None:
    mesh = Mesh("A", 1)
    mesh.replace_own_report(report("A", "B"), 0)
    invented = [f"x{number}" for number in range(3 * MAX_INSTANCES)]
    for name in invented:
        mesh.receive_message("B", tell(msgspec.structs.replace(report(name), number=1)), 0)
    assert len(mesh.peer_reports) == MAX_INSTANCES
    for number in range(100):
        have = [(f"y{number}-{one}", 1, 1) for one in range(1000)]
        words = mesh.receive_message("B", msgspec.msgpack.encode((1, have)), 0)
        assert sum(map(len, words)) < 2 * MAX_PEER_MESSAGE_SIZE
    mesh.receive_message("B", tell(msgspec.structs.replace(report("B", "C"), number=1)), 0)
    mesh.receive_message("B", tell(msgspec.structs.replace(report("C"), number=1)), 0)
    assert {"B", "C"} <= set(mesh.peer_reports)
    assert len(mesh.peer_reports) == MAX_INSTANCES


def test_what_is_too_much_for_a_report_is_left_out() -> None:
    mesh, other = Mesh("A", 1), Mesh("B", 2)
    link = LinkReport(
        "d" * MAX_REPORT_TEXT_LENGTH,
        "p" * MAX_REPORT_TEXT_LENGTH,
        "g" * MAX_REPORT_TEXT_LENGTH,
        "sync",
        True,
        "",
        0,
        0,
        0,
        0,
        0,
        "",
    )
    many = msgspec.structs.replace(report("A", *map(str, range(1000))), links=[link] * 1000)
    mesh.replace_own_report(many, 0)
    [want] = other.receive_message("A", mesh.make_offers()[0], 0)
    [told] = mesh.receive_message("B", want, 0)
    assert len(told) <= MAX_PEER_MESSAGE_SIZE
    other.receive_message("A", told, 0)
    assert 10 < len(other.peer_reports["A"].report.links) <= 256


def test_who_had_a_link_knows_still_where_the_other_one_is() -> None:
    mesh = Mesh("A", 1)
    gone = Neighbour("C", "C", "gone:8085", False, False)
    mesh.replace_own_report(msgspec.structs.replace(report("A"), neighbours=[gone]), 0)
    assert mesh.reachable_instances() == {"A"}
    assert mesh.neighbours_by_name() == {"C": [gone]}
    there = report("A", "B").neighbours
    mesh.replace_own_report(msgspec.structs.replace(report("A"), neighbours=[gone, *there]), 1)
    mesh.receive_message("B", tell(msgspec.structs.replace(report("B", "C"), number=1)), 1)
    assert mesh.reachable_instances() == {"A", "B", "C"}
    assert [one.admin for one in mesh.neighbours_by_name()["C"]] == ["C:8085", "gone:8085"]
