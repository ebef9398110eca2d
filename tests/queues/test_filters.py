"""Consumers with filters: nobody waits for one whose filter matches nothing, and nothing is matched
twice."""

from __future__ import annotations

from itertools import chain

import pytest

from server.queues.core import Queue, QueueSettings
from tests.queues.support import Bench, CountingMatching, marks


@pytest.fixture(autouse=True)
def _count() -> None:
    CountingMatching.asked = 0


def test_each_message_is_matched_once_for_all_filters_together() -> None:
    bench = Bench()
    bench.consumer("a", 10, "nothing")
    bench.consumer("b", 10, "thirds")
    bench.consumer("c", 10, "thirds")
    for _ in range(50):
        bench.publish(1)
        for txids in bench.deliver().values():
            bench.queue.acknowledge(marks(*txids), bench.now)

    assert CountingMatching.asked == 50


def test_a_consumer_has_only_as_much_matched_as_it_takes() -> None:
    bench = Bench()
    bench.publish(20_000)
    bench.consumer("a", 10, "thirds")

    assert bench.deliver() == {"a": [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]}
    assert CountingMatching.asked < 200


def test_a_filter_that_matches_nothing_holds_up_nobody() -> None:
    """What is matched for it in one call has a limit; others get their messages meanwhile."""
    bench = Bench()
    bench.publish(20_000)
    bench.consumer("a", 10, "nothing")
    bench.consumer("b", 3)
    bench.consumer("c", 2, "even")

    deliveries = bench.queue.assign_messages(bench.now, max_matched=500)
    assert CountingMatching.asked <= 500
    assert bench.queue.is_behind
    assert sorted(len(each.txids) for each in deliveries) == [2, 3]
    while bench.queue.is_behind:
        bench.queue.assign_messages(bench.now)
    asked = CountingMatching.asked
    bench.publish(1)
    bench.deliver()
    assert CountingMatching.asked - asked == 1, "everything else has been seen"


def test_filters_that_come_one_after_the_other_share_what_remains_to_be_matched() -> None:
    bench = Bench()
    bench.publish(3_000)
    names = ("nothing", "even", "odd", "thirds")
    for name in names:
        bench.consumer(name, 1, name)
        bench.queue.assign_messages(bench.now, max_matched=64)
    while got := bench.deliver():
        bench.queue.acknowledge(marks(*(txid for each in got.values() for txid in each)), bench.now)

    assert CountingMatching.asked < 6_500, "those that wait together share the way"
    assert len(bench.queue.dispatch.scans) == 1
    asked = CountingMatching.asked
    bench.publish(10)
    bench.deliver()
    assert CountingMatching.asked - asked == 10


def test_a_consumer_waits_on_where_another_has_been_before() -> None:
    """The other one, whose filter has got as far, has no room and waits for nothing."""
    bench = Bench()
    bench.consumer("a", 1, "even")
    bench.publish(2)
    assert bench.deliver() == {"a": [2]}
    bench.consumer("b", 1, "thirds")
    assert bench.deliver() == {}
    bench.publish(1)
    assert bench.deliver() == {"b": [3]}


def test_an_old_message_is_found_for_a_filter_that_is_replaced() -> None:
    bench = Bench()
    consumer = bench.consumer("a", 1, "even")
    bench.publish(5)
    assert bench.deliver() == {"a": [2]}
    bench.queue.acknowledge(marks(2), bench.now)

    bench.queue.attach(consumer, "odd")
    assert bench.deliver() == {"a": [1]}
    bench.queue.acknowledge(marks(1), bench.now)
    bench.queue.attach(consumer)
    assert bench.deliver() == {"a": [3]}


def test_with_priorities_a_late_message_is_matched_before_older_ones() -> None:
    bench = Bench(prioritized=True)
    bench.consumer("a", 1, "even")
    bench.publish(4, priorities=[5, 5, 5, 5])
    assert bench.deliver() == {"a": [2]}
    bench.publish(2, priorities=[9, 9])
    bench.queue.acknowledge(marks(2), bench.now)
    assert bench.deliver() == {"a": [6]}


def test_what_comes_back_finds_consumers_that_have_passed_it() -> None:
    bench = Bench()
    bench.consumer("a", 5, "even")
    gone = bench.consumer("b", 5)
    bench.publish(4)
    bench.deliver()
    bench.queue.acknowledge(marks(1, 3), bench.now)
    held = sorted(
        bench.queue.lifecycle.entries.txid(offset) for offset in gone.slots[0].held_offsets
    )
    bench.queue.detach(gone, bench.now)

    assert bench.deliver() == ({"a": held} if held else {})


def test_a_message_that_others_took_is_not_what_a_new_consumer_waits_for() -> None:
    """The first message known for those without a filter went to a consumer with one."""
    bench = Bench(fairness="fast", max_per_subscription_backlog=1)
    bench.consumer("a")
    bench.consumer("b", 1, "even")
    bench.publish(2)
    assert bench.deliver() == {"a": [1], "b": [2]}
    bench.consumer("c")
    bench.publish(1)
    assert bench.deliver() == {"c": [3]}


@pytest.mark.parametrize("unreadable", [1, 3, 64, 65, 200])
def test_what_cannot_be_looked_at_stays(unreadable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers without filters get everything meanwhile, and those with some get it later."""
    bench = Bench()
    bench.consumer("a", 100, "even")
    bench.consumer("b", 100, "thirds")
    bench.publish(100)
    monkeypatch.setattr(CountingMatching, "unreadable", unreadable)
    got = bench.deliver()
    assert bench.queue.is_unreadable == (unreadable <= 100)
    bench.consumer("c", 1)
    taken = [*chain(*got.values()), *chain(*bench.deliver().values())]
    assert len(bench.consumers["c"].slots[0].held_offsets) == 1
    monkeypatch.undo()
    taken += chain(*bench.deliver().values())
    assert not bench.queue.is_unreadable
    assert len(taken) == len(set(taken))
    assert set(taken) >= {txid for txid in range(1, 101) if txid % 2 == 0 or txid % 3 == 0}


def test_a_barrier_that_cannot_be_looked_at_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.consumer("a", 1, "even")
    bench.publish(2, barriers=[False, True])
    bench.queue.acknowledge(marks(1), bench.now)
    monkeypatch.setattr(CountingMatching, "unreadable", 2)
    assert bench.deliver() == {}
    assert bench.queue.is_unreadable
    monkeypatch.undo()
    assert bench.deliver() == {"a": [2]}


@pytest.mark.parametrize("content_filter", [None, "even"])
def test_a_call_delivers_no_more_than_it_is_told(content_filter: str | None) -> None:
    bench = Bench(max_per_subscription_backlog=1000)
    bench.consumer("a", 1000, content_filter)
    bench.publish(1000)
    for _ in range(5):
        deliveries = bench.queue.assign_messages(bench.now, max_delivered=50)
        assert sum(len(delivery.txids) for delivery in deliveries) == 50
        assert bench.queue.is_behind


def test_room_at_one_queue_is_said_at_the_other() -> None:
    """A consumer's backlog is one for all its queues."""
    told: list[int] = []
    first = Bench()
    second = Queue(
        QueueSettings(max_per_subscription_backlog=10), CountingMatching, "", lambda: told.append(1)
    )
    consumer = first.consumer("a", 1)
    second.attach(consumer)
    first.publish(1)
    first.deliver()
    told.clear()
    first.queue.acknowledge(marks(1), first.now)
    assert told
