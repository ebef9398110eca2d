"""Which destination publishers wait for, and since when: the log says so, and when it is over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from server.replication.links.lag_monitor import LAG_WARNING_SECONDS, ReplicationLagMonitor
from tests.replication.links.support import Instance, Network, destination


@pytest.fixture
def network() -> Network:
    return Network()


def late(network: Network, *, sync: bool = True) -> tuple[Instance, ReplicationLagMonitor]:
    """An instance whose destination has been away for long, when there was something for it."""
    a = network.instance("A", destination("B", port=2, sync=sync), listens=1)
    lateness = ReplicationLagMonitor(a.replication, network.clock, a.log)
    a.publish(4)
    network.pass_time(LAG_WARNING_SECONDS + 2)
    return a, lateness


def test_what_waits_for_long_is_logged_once_with_its_destination(network: Network) -> None:
    a, _ = late(network)
    network.pass_time(20)
    (entry,) = a.logs("1E-0011")
    assert (entry["destination"], entry["state"]) == ("B", "not connected")
    assert entry["txid"] == a.entries.first_txid
    assert entry["age"] == timedelta(seconds=LAG_WARNING_SECONDS)
    assert not a.logs("1E-0012")


def test_it_is_logged_when_the_destination_has_caught_up(network: Network) -> None:
    a, _ = late(network)
    b = network.instance("B", destination("A", port=1), listens=2)
    network.connect(a, "B", b)
    network.pass_time(2)
    (entry,) = a.logs("1E-0012")
    assert (entry["destination"], entry["why"]) == ("B", "it has caught up")
    assert entry["age"] >= timedelta(seconds=LAG_WARNING_SECONDS)  # type: ignore[operator]  # fields are objects
    network.pass_time(20)
    assert len(a.logs("1E-0011")) == 1


def test_it_is_logged_when_nobody_waits_for_it_any_more(network: Network) -> None:
    a, _ = late(network)
    a.replication.downgrade("B")
    network.pass_time(2)
    assert [entry["why"] for entry in a.logs("1E-0012")] == ["it has been downgraded"]


def test_it_is_logged_when_the_destination_is_changed_or_removed(network: Network) -> None:
    a, _ = late(network)
    a.replace_destinations(destination("B", port=3))
    network.pass_time(LAG_WARNING_SECONDS + 2)
    assert len(a.logs("1E-0011")) == 2
    a.replace_destinations()
    network.pass_time(2)
    reasons = [entry["why"] for entry in a.logs("1E-0012")]
    assert reasons == ["it has been changed, and the wait counts anew", "it has been removed"]


def test_it_is_logged_when_the_destination_becomes_async(network: Network) -> None:
    a, _ = late(network)
    a.replace_destinations(destination("B", port=2, sync=False))
    network.pass_time(2)
    assert [entry["why"] for entry in a.logs("1E-0012")] == ["it is async now"]


def test_nobody_waits_for_an_asynchronous_destination(network: Network) -> None:
    a, lateness = late(network, sync=False)
    assert not a.logs("1E-0011")
    assert lateness.state["entries that wait for B"] == 4


def test_what_waits_is_told_with_its_age(network: Network) -> None:
    _, lateness = late(network)
    assert lateness.state == {
        "entries that wait for B": 4,
        "seconds that they have waited for B": LAG_WARNING_SECONDS + 2,
    }


def test_what_does_not_take_long_is_not_logged(network: Network) -> None:
    a = network.instance("A", destination("B", port=2), listens=1)
    ReplicationLagMonitor(a.replication, network.clock, a.log)
    network.connect(a, "B", network.instance("B", destination("A", port=1), listens=2))
    for _ in range(3 * int(LAG_WARNING_SECONDS)):
        a.publish(1)
        network.pass_time(1)
    assert not a.logs("1E-0011")
