"""Who comes under a name that is known: the same instance, a replacement, or somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.replication.core import VERSION, Hello
from tests.replication.links.members import Member
from tests.replication.links.members import destination as member_destination
from tests.replication.links.support import Instance, Network, destination
from tests.replication.links.test_links import pair, reconnect
from tests.replication.memory import Log


@pytest.fixture
def network() -> Network:
    return Network()


def leave(network: Network, instance: Instance) -> None:
    """An instance is gone, and the others notice."""
    for pipe in network.pipes:
        pipe.close()
        if pipe.link is not None:
            pipe.link.connection_lost()
    network.pipes.clear()
    network.instances.remove(instance)


def come(network: Network, nonce: int, log: Log, *, sends: bool = True) -> Instance:
    """An instance that is called B starts."""
    destinations = [destination("A", port=1)] if sends else []
    return network.instance("B", *destinations, listens=2, nonce=nonce, log=log)


def another_log(entries: int) -> Log:
    """A log that B has not had before."""
    log = Log("B")
    log.identity = "B/another"
    return with_entries(log, entries)


def with_entries(log: Log, count: int) -> Log:
    filling = Instance("filling", log=log)
    filling.publish(count, "of the other one", size=20)
    return log


@pytest.mark.parametrize("sends", [True, False], ids=["both ways", "one way"])
@pytest.mark.parametrize(
    ("entries", "message"), [(0, "1E-0030"), (3, "1E-0031")], ids=["empty", "with entries"]
)
def test_both_say_that_another_log_has_come_under_a_name(
    network: Network, entries: int, message: str, *, sends: bool
) -> None:
    excluded = () if sends else ("replicate",)
    a = network.instance("A", destination("B", port=2, excluded=excluded), listens=1)
    b = come(network, 1, Log("B"), sends=sends)
    network.connect(a, "B", b)
    a.publish(5)
    network.settle()
    assert b.bodies() == a.bodies()
    leave(network, b)
    new = come(network, 2, another_log(entries), sends=sends)
    network.connect(a, "B", new)
    network.settle()
    (said,) = a.logs("1E-0030") + a.logs("1E-0031")
    assert a.logs(message) == [said]
    assert (said["before"], said["now"]) == ("B/1000", "B/another")
    assert "B at " in str(said["other"])
    (heard,) = new.logs("1E-0032")
    assert (heard["other"], heard["before"], heard["now"]) == ("A", "B/1000", "B/another")
    assert len(new.bodies()) == entries + 5, "no place in the log before counts"
    assert set(a.bodies()) <= set(new.bodies())


def test_nothing_is_said_of_who_is_known_or_new(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    a.publish(3)
    network.settle()
    reconnect(network, a, b)
    network.settle()
    leave(network, b)
    again = come(network, 2, b.entries)
    network.connect(again, "A", a)
    network.settle()
    for instance in (a, b, again):
        for message in ("1E-0001", "1E-0030", "1E-0031", "1E-0032"):
            assert instance.logs(message) == []


def test_one_that_goes_and_another_one_that_comes_back_are_told_each_time(
    network: Network,
) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    other = another_log(2)
    for nonce, log in ((2, other), (3, b.entries), (4, other)):
        leave(network, network.instances[-1])
        network.connect(a, "B", come(network, nonce, log))
        network.settle()
    assert len(a.logs("1E-0031")) + len(a.logs("1E-0030")) == 3


def test_a_copy_of_an_instance_that_still_runs_is_refused(network: Network) -> None:
    """They have the same log, and cannot be told apart by it: their runs can."""
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    copy = come(network, 2, b.entries)
    network.connect(copy, "A", a)
    network.settle()
    assert not a.logs("1E-0001")
    network.connect(b, "A", a)
    network.settle()
    (said,) = a.logs("1E-0001")
    assert "the data of one are a copy" in str(said["reason"])
    assert b.logs("1E-0002")[0]["reason"] == said["reason"]
    assert set(a.links.peers) == {"B"}
    begun = len(b.events)
    network.connect(b, "A", a)
    network.settle()
    assert len(b.events) == begun, "it does not seem to be let in again and again"


def test_what_a_run_said_before_it_ended_may_come_late(network: Network) -> None:
    """It waited in a buffer; whoever reads it knows the next run already, which is let in again."""
    a, b = pair(network)
    pipe, _ = network.connect(b, "A", a)
    said = bytes(pipe.sent)
    network.settle()
    leave(network, b)
    again = come(network, 2, b.entries)
    network.connect(again, "A", a)
    network.settle()
    late, _ = network.connect(again, "A", a)
    late.sent[:], late.link = said, None
    network.settle()
    late.close()
    network.settle()
    reconnect(network, a, again)
    a.publish(3)
    network.settle()
    assert again.bodies() == a.bodies()
    assert a.logs("1E-0001") == []


def test_an_answer_of_a_run_that_has_ended_may_come_late(network: Network) -> None:
    """It was on its way when its sender ended, and its reader has heard of the next one since."""
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    leave(network, b)
    again = come(network, 2, b.entries)
    ours, theirs = network.connect(a, "B", b)
    ours.arrive()
    network.pipes.clear()
    network.connect(again, "A", a)
    network.settle()
    network.pipes.append(theirs)
    network.settle()
    assert not ours.is_open
    a.publish(3)
    network.settle()
    assert again.bodies() == a.bodies()
    reconnect(network, a, again)
    network.settle()
    assert a.logs("1E-0001") == []
    assert set(a.links.peers) == {"B"}


def test_who_was_there_is_known_after_a_start(tmp_path: Path) -> None:
    member = Member(tmp_path, "a", member_destination("b"))
    hello = Hello(VERSION, "b", "b-group", "1-b", 1, nonce=1)
    assert member.replication.peer_identities.record_peer(hello, 0.0) is None
    member.store()
    member.kill()
    member = Member(tmp_path, "a", member_destination("b"))
    identities = member.replication.peer_identities
    assert identities.record_peer(hello, 0.0) is None
    assert identities.record_peer(Hello(VERSION, "b", "b-group", "1-c", 1, nonce=2), 0.0) == "1-b"
    member.close()


def test_what_makes_no_sense_is_passed_over(network: Network) -> None:
    a, b = pair(network)
    network.connect(a, "B", b)
    network.settle()
    b.links.send_message("A", "identity", b"\xc1nothing")
    network.settle()
    assert a.logs("1E-0032") == []
    assert set(a.links.peers) == {"B"}
