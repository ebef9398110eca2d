"""A peer that connects and goes, again and again."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from server.replication.links.flap_log import FLAP_SUMMARY_INTERVAL_S, MAX_FLAP_ENTRIES
from tests.replication.links.support import Instance, Network
from tests.replication.links.test_links import A_TO_B, pair, reconnect

FLAPS = 300
COMINGS = ("1F-0006", "1F-0007", "1F-0008", "1F-0009", "21-0001", "21-0002")


@pytest.fixture
def network() -> Network:
    return Network()


def flap(network: Network, a: Instance, b: Instance, times: int) -> None:
    """Connect and drop the connection, and publish meanwhile."""
    for _ in range(times):
        reconnect(network, a, b)
        a.publish(1)
        network.settle()


def entries(instance: Instance) -> int:
    return sum(len(instance.logs(message)) for message in COMINGS)


def test_the_log_does_not_grow_with_links_that_come_and_go(network: Network) -> None:
    a, b = pair(network)
    flap(network, a, b, FLAPS)
    for instance in (a, b):
        assert 0 < entries(instance) <= 2 * MAX_FLAP_ENTRIES, "of both directions"
    network.pass_time(FLAP_SUMMARY_INTERVAL_S)
    for instance in (a, b):
        said = {str(one["client"]): one for one in instance.logs("1E-0033")}
        assert said[A_TO_B]["count"] == FLAPS - 1
        assert said[A_TO_B]["state"] == "connected"
    assert b.bodies() == a.bodies()
    assert len(b.bodies()) == FLAPS
    assert a.replication.settled_txid == a.entries.last_txid


def test_a_link_that_begins_again_now_and_then_is_logged_each_time(network: Network) -> None:
    a, b = pair(network)
    times = 3 * MAX_FLAP_ENTRIES
    for _ in range(times):
        reconnect(network, a, b)
        network.pass_time(20, step=1)
    assert len(a.logs("1F-0009")) + len(a.logs("1F-0007")) == times
    assert a.logs("1E-0033") == b.logs("1E-0033") == []


def test_nothing_is_kept_of_links_that_have_gone(network: Network) -> None:
    a, b = pair(network)
    flap(network, a, b, 50)
    for instance in (a, b):
        instance.log.entries.clear()
    tracemalloc.start()
    try:
        reconnect(network, a, b)
        network.settle()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(FLAPS):
            reconnect(network, a, b)
            network.settle()
            a.events.clear()
            b.events.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1000 * FLAPS
