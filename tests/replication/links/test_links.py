"""Two instances and their links: they meet, replicate both ways, part, and meet again."""

from __future__ import annotations

import pytest

from config_schema.spec import KnownBy
from server.replication.links.link import HEARTBEAT_TIMEOUT_S
from server.replication.links.link_events import LinkEvent
from tests.replication.links.support import Instance, Network, Pipe, destination

A_TO_B = "A!B@B!sync!amps-replication"
B_TO_A = "B!A@A!sync!amps-replication"


@pytest.fixture
def network() -> Network:
    return Network()


def pair(network: Network, **options: object) -> tuple[Instance, Instance]:
    """Two instances that replicate to each other."""
    return (
        network.instance("A", destination("B", port=2), listens=1, **options),
        network.instance("B", destination("A", port=1), listens=2, **options),
    )


def test_what_one_publishes_the_other_has(network: Network) -> None:
    a, b = pair(network)
    a.publish(10)
    network.connect(a, "B", b)
    network.settle()
    assert b.bodies() == a.bodies()
    a.publish(5)
    network.settle()
    assert b.bodies() == a.bodies()
    assert network.outcomes == [True]


def test_one_connection_is_for_both_directions(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    a.publish(3, "at A")
    b.publish(4, "at B")
    network.settle()
    assert sorted(a.bodies()) == sorted(b.bodies())
    assert len(a.bodies()) == 7
    assert [one["client"] for one in b.logs("1F-0006")] == [A_TO_B]
    assert [one["client"] for one in a.logs("1F-0006")] == [B_TO_A]


def test_what_is_published_is_settled_when_the_destination_has_it(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    a.publish(3)
    network.settle(commit=False)
    assert len(b.bodies()) == 3
    assert a.replication.settled_txid < a.entries.last_txid
    b.commit()
    network.settle()
    assert a.replication.settled_txid == a.entries.last_txid


@pytest.mark.parametrize("size", [1, 7, 100])
def test_bytes_may_come_in_any_portions(network: Network, size: int) -> None:
    a, b = pair(network)
    a.publish(20)
    network.connect(a, "B", b)
    network.settle(size=size)
    assert b.bodies() == a.bodies()


def test_batches_are_compressed_if_the_destination_says_so(network: Network) -> None:
    a = network.instance("A", destination("B", compression="zlib", excluded=["replicate"]))
    b = network.instance("B")
    ours, _ = network.connect(a, "B", b)
    network.settle()
    a.publish(100, size=1000)
    network.clock.turn()
    assert 0 < len(ours.sent) < 20_000
    network.settle()
    assert b.bodies() == a.bodies()


def reconnect(network: Network, a: Instance, b: Instance) -> tuple[Pipe, Pipe]:
    """Cut all connections, and make one."""
    for pipe in network.pipes:
        pipe.close()
        if pipe.link is not None:
            pipe.link.connection_lost()
    network.pipes.clear()
    return network.connect(a, "B", b)


def test_a_link_that_is_made_again_goes_on(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    a.publish(10)
    network.settle()
    before = a.sender("B").sent_entries
    a.publish(5)
    reconnect(network, a, b)
    network.settle()
    assert b.bodies() == a.bodies()
    assert a.sender("B").sent_entries <= before + 10
    assert [one["client"] for one in a.logs("1F-0007")] == [A_TO_B]
    assert [one["client"] for one in a.logs("1F-0008")] == [A_TO_B, B_TO_A]


def test_a_link_is_made_again_when_somebody_wants_that(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    assert a.links.is_connected("B")
    assert a.links.reconnect("B")
    assert not a.links.is_connected("B")
    assert not a.links.reconnect("B")
    network.connect(a, "B", b)
    a.publish(5)
    network.settle()
    assert b.bodies() == a.bodies()


def test_what_happens_to_links_is_told(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    kinds = {event for event, _ in a.events}
    assert kinds == {LinkEvent.CONNECT, LinkEvent.RESYNC_COMPLETE, LinkEvent.CONNECT_INCOMING}
    way = next(way for event, way in b.events if event is LinkEvent.CONNECT_INCOMING)
    assert (way.client, way.peer, way.group) == (A_TO_B, "A", "A")
    assert (way.address, way.transport) == ("localhost:50000", "replication")
    way = next(way for event, way in a.events if event is LinkEvent.CONNECT)
    assert (way.client, way.address, way.transport) == (A_TO_B, "localhost:1", "out")
    a.links.close()
    network.settle()
    assert {event for event, _ in b.events} == {
        LinkEvent.CONNECT,
        LinkEvent.RESYNC_COMPLETE,
        LinkEvent.CONNECT_INCOMING,
        LinkEvent.DISCONNECT,
        LinkEvent.DISCONNECT_INCOMING,
    }


def open_pipes(network: Network) -> list[Pipe]:
    return [pipe for pipe in network.pipes if pipe.is_open]


@pytest.mark.parametrize("first", ["A", "B"])
@pytest.mark.parametrize("together", [True, False])
def test_of_two_connections_one_stays(network: Network, first: str, together: bool) -> None:
    a, b = pair(network)
    ways = [(a, "B", b), (b, "A", a)]
    for way in ways if first == "A" else ways[::-1]:
        network.connect(*way)
        if not together:
            network.settle()
    network.settle()
    assert len(open_pipes(network)) == 2
    a.publish(3, "at A")
    b.publish(4, "at B")
    network.settle()
    assert sorted(a.bodies()) == sorted(b.bodies())
    assert len(a.bodies()) == 7
    network.pass_time(2 * HEARTBEAT_TIMEOUT_S)
    assert len(open_pipes(network)) == 2


LACKS = {
    "neither will do": (("A", "B"), 4),
    "that of B will not do for A": (("A",), 2),
    "that of A will not do for B": (("B",), 2),
}


@pytest.mark.parametrize("first", ["A", "B"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("strict", "ends"), LACKS.values(), ids=LACKS)
def test_a_destination_is_served_over_what_it_wants_only(
    network: Network, strict: tuple[str, ...], ends: int, together: bool, first: str
) -> None:
    """Both ends find the same connections to stay, whichever was first; then they do."""
    a, b = pair(network)
    ways = [(a, "B", b), (b, "A", a)]
    for source, name, target in ways if first == "A" else ways[::-1]:
        lack = "it is not encrypted" if target.name in strict else None
        network.connect(source, name, target, falls_short=lack)
        if not together:
            network.settle()
    network.settle()
    assert len(open_pipes(network)) == ends
    a.publish(3, "at A")
    b.publish(4, "at B")
    network.settle()
    assert sorted(a.bodies()) == sorted(b.bodies())
    assert len(a.bodies()) == 7
    network.pass_time(2 * HEARTBEAT_TIMEOUT_S)
    assert len(open_pipes(network)) == ends
    assert a.logs("1E-0020") == b.logs("1E-0020") == []
    served = {pipe.link.destination for pipe in open_pipes(network) if pipe.link is not None}
    assert {"A", "B"} <= served
    for instance, other in ((a, "B"), (b, "A")):
        (peer,) = instance.links.peers.values()
        assert (peer.name, peer.destination, peer.sends) == (other, other, True)


def test_what_a_connection_lacks_is_said_once_a_minute(network: Network) -> None:
    a = network.instance("A", destination("B", port=None), listens=1)
    b = network.instance("B", destination("A", port=1), listens=2)
    network.connect(b, "A", a, falls_short="it is not encrypted")
    network.settle()
    a.publish(1, "at A")
    b.publish(1, "at B")
    network.pass_time(50)
    assert (len(a.bodies()), len(b.bodies())) == (2, 1)
    assert a.logs("1E-0020") == [
        {
            "instance": "A",
            "other": "B at localhost:50000",
            "destination": "B",
            "reason": "it is not encrypted",
        }
    ]
    network.pass_time(60)
    assert len(a.logs("1E-0020")) == 2
    network.connect(a, "B", b)
    network.settle()
    assert len(b.bodies()) == 2
    network.pass_time(90)
    assert len(a.logs("1E-0020")) == 2
    assert len(open_pipes(network)) == 2


def test_a_connection_made_again_replaces_the_one_before(network: Network) -> None:
    a, b = pair(network)
    ours, theirs = network.connect(b, "A", a)
    network.settle()
    ours.other = Pipe("nowhere")  # A has not heard that it is gone
    ours.link.connection_lost() if ours.link else None
    network.pipes.remove(ours)
    network.connect(b, "A", a)
    network.settle()
    a.publish(3)
    b.publish(3, "at B")
    network.settle()
    assert sorted(a.bodies()) == sorted(b.bodies())
    assert not theirs.is_open
    assert a.logs("1E-0001") == b.logs("1E-0001") == []


def test_a_connection_that_only_one_end_has_left_is_found_out(network: Network) -> None:
    """The other end decides: a link held in reserve is taken up by what comes over it."""
    a, b = pair(network)
    ours, theirs = network.connect(a, "B", b)
    network.settle()
    network.pipes.remove(theirs)  # B has lost it, and A does not know
    theirs.link.connection_lost() if theirs.link else None
    network.connect(b, "A", a)
    network.settle()
    network.pass_time(2 * HEARTBEAT_TIMEOUT_S)
    network.connect(b, "A", a)
    network.settle()
    a.publish(3)
    network.settle()
    assert a.bodies() == b.bodies()
    assert not ours.is_open


def test_silence_ends_a_link(network: Network) -> None:
    a, b = pair(network)
    ours, theirs = network.connect(a, "B", b)
    network.settle()
    network.pass_time(5 * HEARTBEAT_TIMEOUT_S)
    assert ours.is_open
    network.pipes.clear()  # nothing arrives any more
    network.clock.advance(HEARTBEAT_TIMEOUT_S - 2)
    assert ours.is_open
    network.clock.advance(4)
    assert not ours.is_open
    assert not theirs.is_open
    assert "no data received" in str(a.logs("1E-0004"))


def test_acks_come_as_often_as_the_source_wants(network: Network) -> None:
    a = network.instance("A", destination("B", interval=2, excluded=["replicate"]))
    b = network.instance("B")
    network.connect(a, "B", b)
    network.settle()
    network.pass_time(3.5)
    a.publish(1)
    network.settle()
    assert a.replication.settled_txid == a.entries.last_txid, "the first is told at once"
    a.publish(1)
    network.settle()
    network.pass_time(1)
    assert a.replication.settled_txid < a.entries.last_txid
    network.pass_time(1.5)
    assert a.replication.settled_txid == a.entries.last_txid


def test_much_is_acknowledged_before_its_time(network: Network) -> None:
    a = network.instance("A", destination("B", interval=1000, excluded=["replicate"]))
    b = network.instance("B")
    network.connect(a, "B", b)
    network.settle()
    a.publish(40, size=1 << 20)
    network.settle()
    network.pass_time(1)
    assert len(b.bodies()) == 40


def test_a_log_that_takes_nothing_holds_its_source_back(network: Network) -> None:
    a, b = pair(network)
    _, theirs = network.connect(a, "B", b)
    network.settle()
    b.room = 3
    a.publish(10)
    network.settle()
    assert len(b.bodies()) == 3
    assert not theirs.is_reading
    network.pass_time(3 * HEARTBEAT_TIMEOUT_S)
    assert theirs.is_open
    assert not theirs.is_reading
    b.room = None
    network.pass_time(1)
    assert b.bodies() == a.bodies()
    assert theirs.is_reading


def test_a_connection_that_takes_nothing_is_given_no_batches(network: Network) -> None:
    a, b = pair(network)
    ours, _ = network.connect(a, "B", b)
    network.settle()
    ours.is_ready = False
    a.publish(1000, size=1000)
    network.settle()
    assert b.bodies() == []
    assert len(ours.sent) == 0
    ours.is_ready = True
    assert ours.link is not None
    ours.link.resume_writing()
    network.settle()
    assert b.bodies() == a.bodies()


def test_an_instance_that_was_started_anew_is_believed_at_once(network: Network) -> None:
    a, b = pair(network)
    network.connect(b, "A", a)
    network.settle()
    b.publish(2)
    network.settle()
    network.pipes.clear()  # B is killed, and A hears nothing of it
    again = network.instance("B", destination("A", port=1), listens=2, nonce=2, log=b.entries)
    network.instances.remove(b)
    network.connect(again, "A", a)
    network.settle()
    again.publish(2)
    network.settle()
    assert a.bodies() == again.bodies()


@pytest.mark.parametrize(("mine", "theirs"), [("A", "B"), ("B", "A")])
def test_a_destination_that_cannot_be_recognized_is_learned(
    network: Network, mine: str, theirs: str
) -> None:
    """Its name and address do not tell; whoever is connected to says who they are."""
    one = network.instance(mine, destination("far", group=theirs, port=99), listens=1)
    other = network.instance(theirs, destination(mine, port=1), listens=2)
    network.connect(other, mine, one)
    network.settle()
    one.publish(3)
    network.settle()
    assert other.bodies() == []
    network.connect(one, "far", other)
    network.settle()
    assert other.bodies() == one.bodies()
    assert len(open_pipes(network)) == 2
    reconnect_from(network, other, mine, one)
    one.publish(3)
    network.settle()
    assert other.bodies() == one.bodies()


def reconnect_from(network: Network, source: Instance, name: str, target: Instance) -> None:
    """Cut all connections, and make one."""
    for pipe in network.pipes:
        pipe.close()
        if pipe.link is not None:
            pipe.link.connection_lost()
    network.pipes.clear()
    network.connect(source, name, target)
    network.settle()


def test_members_of_a_group_are_told_apart(network: Network) -> None:
    hub = network.instance(
        "hub",
        destination("by address", group="spokes", port=7, excluded=["replicate"]),
        destination("two", group="spokes", port=8, excluded=["replicate"]),
        destination("anybody", group="spokes", port=None, excluded=["replicate"]),
    )
    for name, port in (("three", 9), ("two", 99), ("one", 7)):
        spoke = network.instance(name, destination("hub"), group="spokes", listens=port)
        network.connect(spoke, "hub", hub)
        network.settle()
    peers = {name: hub.sender(name).peer for name in hub.replication.destinations}
    assert {name: peer.name for name, peer in peers.items() if peer is not None} == {
        "by address": "one",
        "two": "two",
        "anybody": "three",
    }


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize(
    ("name", "known_by", "is_served"),
    [
        ("two", "group", False),
        ("two", "name", True),
        ("far", "name", False),
        ("h:2", "address", True),
    ],
)
def test_without_a_group_the_name_says_who_is_meant(
    network: Network, name: str, known_by: KnownBy, is_served: bool, accepts: bool
) -> None:
    """And without a name either, the address."""
    way = destination(name, port=2, known_by=known_by, excluded=["replicate"])
    one = network.instance("one", way, listens=1)
    back = destination("one", port=1, excluded=["replicate"])
    two = network.instance("two", back, group="pair", listens=2)
    if accepts:
        network.connect(two, "one", one)
    else:
        network.connect(one, name, two)
    network.settle()
    one.publish(1)
    network.settle()
    assert (two.bodies() == one.bodies()) == is_served
    assert bool(one.logs("1E-0001")) == (not is_served and not accepts)


def test_two_destinations_cannot_be_one_instance(network: Network) -> None:
    a = network.instance(
        "A",
        destination("first", group="B", port=2, excluded=["replicate"]),
        destination("second", group="B", port=2, excluded=["replicate"]),
    )
    b = network.instance("B", listens=2)
    network.connect(a, "first", b)
    network.settle()
    network.connect(a, "second", b)
    network.settle()
    (refused,) = a.logs("1E-0001")
    assert "B is the destination first of A already, and cannot be second too" in str(refused)
    assert b.logs("1E-0002")[0]["reason"] == refused["reason"]
    a.publish(1)
    network.settle()
    assert b.bodies() == a.bodies()


def test_thousands_of_topics_are_described(network: Network) -> None:
    topics = ["orders", *(f"topic-{number}" for number in range(20_000))]
    a, b = pair(network, logged=topics)
    network.connect(a, "B", b)
    network.settle()
    assert network.outcomes == [True]


def test_an_instance_without_a_transport_for_it_is_sent_nothing(network: Network) -> None:
    hub = network.instance("hub", destination("spoke", port=None), listens=1)
    back = destination("hub", port=1, excluded=["replicate"])
    spoke = network.instance("spoke", back, listens=None)
    network.connect(spoke, "hub", hub)
    network.settle()
    spoke.publish(2)
    hub.publish(1, "at the hub")
    network.settle()
    assert len(hub.bodies()) == 3
    assert len(spoke.bodies()) == 2
    (said,) = hub.logs("1E-0009")
    assert said["destination"] == "spoke"


def test_what_is_said_again_and_again_is_logged_now_and_then(network: Network) -> None:
    a, b = pair(network)
    for _ in range(20):
        network.connect(a, "B", b, admit=lambda _user, _password: "you are not to")
        network.settle()
        network.pass_time(1)
    assert len(a.logs("1E-0002")) == len(b.logs("1E-0001")) == 1
    network.pass_time(60)
    network.connect(a, "B", b, admit=lambda _user, _password: "you are not to")
    network.settle()
    assert len(a.logs("1E-0002")) == len(b.logs("1E-0001")) == 2
