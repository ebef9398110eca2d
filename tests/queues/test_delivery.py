"""Who gets which message: backlogs, leases, order, fairness, barriers, keys."""

from __future__ import annotations

import pytest

from server.queues.core import AckOutcome, Consumer, Queue, QueueSettings, Released
from tests.queues.support import PUBLISHER, SECOND, Bench, CountingMatching, marks


def test_messages_are_delivered_in_order_up_to_the_backlog() -> None:
    bench = Bench()
    bench.consumer("a", backlog=3)
    bench.publish(5)

    assert bench.deliver() == {"a": [1, 2, 3]}
    bench.queue.acknowledge(marks(2), bench.now, "a")
    assert bench.deliver() == {"a": [4]}


@pytest.mark.parametrize(
    ("requested", "allowed", "limit"), [(1, 1, 1), (10, 3, 3), (2, 3, 2), (0, 3, 0)]
)
def test_the_backlog_is_the_least_of_what_is_wanted_and_allowed(
    requested: int, allowed: int, limit: int
) -> None:
    bench = Bench(max_per_subscription_backlog=allowed)
    consumer = bench.consumer("a", requested)
    bench.publish(20)

    assert consumer.max_backlog == limit
    assert len(bench.deliver().get("a", [])) == limit


def test_a_paused_consumer_gets_nothing_until_it_asks_for_more() -> None:
    bench = Bench()
    consumer = bench.consumer("a", backlog=0)
    bench.publish(2)

    assert bench.deliver() == {}
    consumer.set_requested_backlog(5)
    assert bench.deliver() == {"a": [1, 2]}


def test_a_smaller_backlog_keeps_what_is_held() -> None:
    bench = Bench()
    consumer = bench.consumer("a", backlog=4)
    bench.publish(9)
    bench.deliver()

    consumer.set_requested_backlog(2)
    bench.queue.attach(consumer, "even")
    bench.queue.acknowledge(marks(1, 2), bench.now)
    assert (consumer.outstanding, bench.deliver()) == (2, {})
    bench.queue.acknowledge(marks(3), bench.now)
    assert bench.deliver() == {"a": [6]}


def test_the_queues_backlog_limits_all_consumers_together() -> None:
    bench = Bench(max_backlog=3)
    bench.consumer("a", 2)
    bench.consumer("b", 2)
    bench.publish(9)

    assert sum(map(len, bench.deliver().values())) == 3
    bench.queue.acknowledge(marks(1, 2), bench.now)
    assert sum(map(len, bench.deliver().values())) == 2


def test_a_backlog_counts_over_all_queues_of_a_subscription() -> None:
    """And it is the least that any of these allows."""
    queues = [
        Queue(QueueSettings(max_per_subscription_backlog=allowed), CountingMatching)
        for allowed in (5, 3)
    ]
    consumer = Consumer("a", "a", 10)
    for queue in queues:
        queue.attach(consumer)
        queue.lifecycle.enqueue(range(1, 9), [SECOND] * 8, PUBLISHER, range(1, 9))

    assert consumer.max_backlog == 3
    assert [list(each.txids) for each in queues[0].assign_messages(SECOND)] == [[1, 2, 3]]
    assert queues[1].assign_messages(SECOND) == []
    queues[0].acknowledge(marks(1), SECOND, "a")
    assert [list(each.txids) for each in queues[1].assign_messages(SECOND)] == [[1]]
    queues[1].retire(consumer)
    assert consumer.max_backlog == 5, "the queue that it has left does not count any more"
    queues[1].acknowledge(marks(1), SECOND, "a")
    assert len(consumer.slots) == 1


@pytest.mark.parametrize(
    ("fairness", "shares"),
    [
        ("fast", {"a": [1, 2], "b": [3, 4, 5, 6], "c": [7]}),
        ("round-robin", {"a": [1, 4], "b": [2, 5, 7], "c": [3, 6]}),
        ("proportional", {"a": [1], "b": [2, 6], "c": [3, 4, 5, 7]}),
    ],
)
def test_fairness(fairness: str, shares: dict[str, list[int]]) -> None:
    bench = Bench(fairness=fairness)
    for name, backlog in (("a", 2), ("b", 4), ("c", 10)):
        bench.consumer(name, backlog)
    bench.publish(7)

    assert bench.deliver() == shares


def test_proportional_goes_to_the_consumer_with_the_most_unused_capacity() -> None:
    """The example of the reference: 1 of 2, 3 of 4, and 4 of 10."""
    bench = Bench()
    backlogs = {"inky": 2, "blinky": 4, "clyde": 10}
    for name, backlog in backlogs.items():
        bench.consumer(name, backlog)
    bench.publish(16)
    held = bench.deliver()
    for name, keep in (("inky", 1), ("blinky", 3), ("clyde", 4)):
        bench.queue.acknowledge(marks(*held[name][keep:]), bench.now)
    bench.publish(1)

    assert bench.deliver() == {"clyde": [17]}


@pytest.mark.parametrize("fairness", ["fast", "round-robin", "proportional"])
def test_equal_consumers_get_equal_shares_when_the_model_is_fair(fairness: str) -> None:
    bench = Bench(fairness=fairness)
    for name in "abcd":
        bench.consumer(name, 10)
    counts = dict.fromkeys("abcd", 0)
    for _ in range(50):
        bench.publish(4)
        for name, txids in bench.deliver().items():
            counts[name] += len(txids)
            bench.queue.acknowledge(marks(*txids), bench.now)

    assert counts == (dict.fromkeys("abcd", 50) if fairness != "fast" else counts)
    assert sum(counts.values()) == 200


def test_what_comes_back_goes_before_newer_messages() -> None:
    bench = Bench()
    gone = bench.consumer("a", 3)
    bench.publish(5)
    bench.deliver()
    bench.consumer("b", 4)

    bench.queue.detach(gone, bench.now)
    assert bench.deliver() == {"b": [1, 2, 3, 4]}


def test_what_a_consumer_had_comes_back_a_few_at_a_time() -> None:
    """Oldest first; what is left at the end comes back when it is detached."""
    bench = Bench()
    gone = bench.consumer("a", 70)
    bench.publish(70)
    bench.deliver()
    bench.consumer("b", 80)
    queue, seen = bench.queue, [70]
    while queue.detach_batch(gone, bench.now, 20):
        seen.append(sum(len(seat.held_offsets) for seat in gone.slots))
    assert seen == [70, 50, 30, 10]
    bench.publish(1)
    assert bench.deliver() == {"b": [*range(1, 61), 71]}
    queue.detach(gone, bench.now)
    assert bench.deliver() == {"b": list(range(61, 71))}


def test_a_lease_ends_and_the_message_goes_to_whoever_has_room() -> None:
    bench = Bench(lease_period=10 * SECOND)
    bench.consumer("a", 1)
    bench.publish(1)
    (delivery,) = bench.deliveries()

    assert delivery.lease_until == bench.now + 10 * SECOND
    assert bench.queue.next_deadline == delivery.lease_until
    bench.consumer("b", 1)
    bench.later(10 * SECOND - 1)
    assert bench.deliver() == {}
    bench.later(1)
    assert bench.deliver() == {"a": [1]}
    assert bench.queue.counters.expired_leases == 1


@pytest.mark.parametrize("keys", [[], [7]], ids=["no keys", "one key"])
def test_what_expires_together_does_so_in_slices_and_is_not_delivered(keys: list[int]) -> None:
    """Also where each waits for the one before it."""
    count, most = 5000, 100
    bench = Bench(keyed=bool(keys))
    queue = bench.queue
    bench.publish(count, lifetimes=[SECOND] * count, **({"keys": keys * count} if keys else {}))
    bench.publish(1, **({"keys": keys} if keys else {}))
    bench.later(5 * SECOND)
    bench.consumer("a", 10)
    delivered: list[int] = []
    for _ in range(count // most + 10):
        before = queue.counters.expired
        for delivery in queue.assign_messages(bench.now, max_delivered=most):
            delivered += delivery.txids
        assert queue.counters.expired - before <= most
        assert queue.is_behind or delivered == [count + 1]
    assert (queue.counters.expired, delivered) == (count, [count + 1])


def test_a_lease_can_be_extended_by_its_holder() -> None:
    bench = Bench(lease_period=10 * SECOND)
    bench.consumer("a", 2)
    bench.consumer("b", 1, "nothing")
    bench.publish(2)
    bench.deliver()

    until = bench.now + 60 * SECOND
    assert bench.queue.extend_leases(marks(1), until, bench.now, "b").affected_count == 0
    assert bench.queue.extend_leases(marks(1), until, bench.now, "a").affected_count == 1
    bench.later(10 * SECOND)
    assert bench.deliver() == {"a": [2]}
    bench.later(50 * SECOND)
    assert bench.deliver() == {"a": [1, 2]}


def test_an_extended_lease_is_one_lease_and_ends_once() -> None:
    """It began when the consumer got the message; without an end there is nothing to extend."""
    bench = Bench(lease_period=10 * SECOND)
    bench.consumer("a", 1)
    bench.publish(1)
    bench.deliver()
    for _ in range(3):
        bench.later(5 * SECOND)
        bench.queue.extend_leases(marks(1), bench.now + 10 * SECOND, bench.now, "a")
    assert bench.queue.acknowledge(marks(1), bench.now, "a").affected_count == 1
    assert bench.queue.lifecycle.leases.hold_times_us.total == 15 * SECOND

    endless = Bench()
    endless.consumer("a", 1)
    endless.publish(1)
    endless.deliver()
    result = endless.queue.extend_leases(marks(1), endless.now + SECOND, endless.now, "a")
    assert (result.affected_count, endless.queue.next_deadline) == (0, None)


def test_at_most_once_never_sends_again_but_counts_until_the_ack() -> None:
    bench = Bench(at_most_once=True, fairness="round-robin")
    consumer = bench.consumer("a", 2)
    bench.publish(4)

    assert bench.deliver() == {"a": [1, 2]}
    assert bench.queue.depth == 2
    assert bench.deliver() == {}
    bench.queue.acknowledge(marks(2), bench.now, "a", AckOutcome.CANCEL)
    assert bench.deliver() == {"a": [3]}
    bench.queue.detach(consumer, bench.now)
    bench.consumer("b", 10)
    assert bench.deliver() == {"b": [4]}
    assert bench.queue.depth == 0


def test_higher_priorities_go_first_and_what_is_no_number_last() -> None:
    bench = Bench(prioritized=True)
    bench.publish(6, priorities=[1, None, 7.9, float("nan"), 2**64 - 1, 7])
    bench.consumer("a", 2)

    assert bench.deliver() == {"a": [5, 3]}
    bench.publish(1, priorities=[100])
    bench.queue.acknowledge(marks(5, 3), bench.now)
    assert bench.deliver() == {"a": [7, 6]}
    bench.queue.acknowledge(marks(7), bench.now)
    bench.queue.acknowledge(marks(6), bench.now, outcome=AckOutcome.CANCEL)
    assert bench.deliver() == {"a": [6, 1]}
    bench.queue.acknowledge(marks(6, 1), bench.now)
    assert bench.deliver() == {"a": [2, 4]}


def test_a_barrier_waits_for_all_before_it_and_holds_up_all_behind_it() -> None:
    bench = Bench()
    bench.consumer("a", 1)
    bench.consumer("b", 5, "even")
    bench.consumer("c", 0)
    bench.publish(5, barriers=[False, False, False, True, False])

    assert bench.deliver() == {"a": [1], "b": [2]}
    bench.queue.acknowledge(marks(1, 2), bench.now)
    assert bench.deliver() == {"a": [3]}
    bench.queue.acknowledge(marks(3), bench.now, outcome=AckOutcome.CANCEL)
    assert bench.deliver() == {"a": [3]}
    bench.queue.acknowledge(marks(3), bench.now)
    assert bench.deliver() == {"a": [4, 5], "b": [4], "c": [4]}
    assert bench.queue.depth == 1, "a barrier is not acknowledged by anybody"
    assert Released(bench.now, marks(4)) in bench.queue.drain_events()


def test_a_barrier_waits_for_somebody_to_be_there() -> None:
    bench = Bench()
    bench.publish(2, barriers=[True, False])
    assert bench.deliver() == {}

    bench.consumer("a", 5)
    deliveries = bench.deliveries()
    assert [(list(each.txids), each.is_barrier) for each in deliveries] == [
        ([1], True),
        ([2], False),
    ]


def test_messages_of_a_key_follow_one_another_and_hold_up_no_other_key() -> None:
    bench = Bench(keyed=True)
    bench.consumer("a", 2)
    bench.consumer("b", 2)
    bench.publish(6, keys=[1, 1, 2, 1, 0, 0])

    assert bench.deliver() == {"a": [1, 5], "b": [3, 6]}
    bench.queue.acknowledge(marks(1), bench.now, outcome=AckOutcome.CANCEL)
    assert bench.deliver() == {"a": [1]}, "it comes back before those behind it"
    bench.queue.acknowledge(marks(1), bench.now)
    assert bench.deliver() == {"a": [2]}
    bench.queue.acknowledge(marks(4), bench.now)
    bench.queue.acknowledge(marks(2), bench.now)
    assert bench.deliver() == {}
    assert bench.queue.depth == 3
    bench.publish(1, keys=[1])
    assert bench.deliver() == {"a": [7]}, "all before it have left"


def test_a_cancelled_message_leaves_the_head_free_and_backs_off() -> None:
    bench = Bench(retry_delay=2 * SECOND, max_retry_delay=5 * SECOND)
    bench.consumer("a", 1)
    bench.publish(2)
    for wait in (2, 4, 5, 5):
        assert bench.deliver() == {"a": [1]}
        bench.queue.acknowledge(marks(1), bench.now, "a", AckOutcome.CANCEL)
        assert bench.deliver() == {"a": [2]}, "the next one is not held up"
        bench.queue.acknowledge(marks(2), bench.now, "a", AckOutcome.CANCEL, delay=wait * SECOND)
        bench.later(wait * SECOND - 1)
        assert bench.deliver() == {}
        bench.later(1)


def test_leases_by_the_thousand_end_in_portions() -> None:
    """Nobody waits until all of them have come back."""
    bench = Bench(max_per_subscription_backlog=1000, lease_period=SECOND)
    bench.publish(1000)
    bench.consumer("a", 1000)
    for _ in range(20):
        bench.queue.assign_messages(bench.now, max_delivered=50)
    assert bench.queue.leased_count == 1000
    bench.consumers["a"].set_requested_backlog(0)
    bench.later(2 * SECOND)
    for left in range(950, -1, -50):
        bench.queue.assign_messages(bench.now, max_delivered=50)
        assert (bench.queue.leased_count, bench.queue.is_behind) == (left, left > 0)
    bench.consumers["a"].set_requested_backlog(1000)
    assert bench.deliver() == {"a": list(range(1, 1001))}
