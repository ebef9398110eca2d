"""Acknowledgements: what they do, when they come early, and why they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from server.queues.core import (
    Acked,
    AckOutcome,
    Cancelled,
    Consumer,
    Expired,
    parse_bookmarks,
)
from server.queues.core.inspection import all_offsets
from tests.queues.support import PUBLISHER, SECOND, Bench, marks


def leased(**settings: Any) -> Bench:
    """A bench with two consumers, who have two messages each, and an unleased fifth message."""
    bench = Bench(fairness="fast", **settings)
    bench.consumer("a", 2)
    bench.consumer("b", 2)
    bench.publish(5)
    bench.deliver()
    bench.queue.drain_events()
    return bench


@pytest.mark.parametrize(
    ("strict", "txid", "way", "reason"),
    [
        (False, 3, AckOutcome.DONE, None),
        (True, 3, AckOutcome.DONE, "leased to another client"),
        (True, 3, AckOutcome.CANCEL, "leased to another client"),
        (True, 3, AckOutcome.EXPIRE, "leased to another client"),
        (True, 1, AckOutcome.DONE, None),
        (True, 5, AckOutcome.DONE, None),
        (False, 5, AckOutcome.CANCEL, "not leased"),
        (False, 5, AckOutcome.EXPIRE, None),
        (False, 9, AckOutcome.CANCEL, "not in the queue"),
        (False, 9, AckOutcome.EXPIRE, "not in the queue"),
    ],
)
def test_who_may_acknowledge_what(
    strict: bool, txid: int, way: AckOutcome, reason: str | None
) -> None:
    bench = leased(strict=strict)
    result = bench.queue.acknowledge(marks(txid), bench.now, "a", way)

    if reason is None:
        assert (result.affected_count, result.refusals) == (1, [])
    else:
        assert result.affected_count == 0
        ((mark, said),) = result.refusals
        assert mark == (PUBLISHER, txid)
        assert reason in said


def test_the_server_itself_may_acknowledge_whatever_is_leased() -> None:
    bench = leased(strict=True)
    assert bench.queue.acknowledge(marks(1, 3, 5), bench.now).affected_count == 3


def test_it_is_counted_how_long_consumers_had_what_they_acknowledge() -> None:
    bench = leased()
    bench.now += 1_000
    bench.queue.acknowledge(marks(1, 2), bench.now, "a")
    bench.now += 5_000
    bench.queue.acknowledge(marks(3), bench.now, "b")
    held = bench.queue.lifecycle.leases.hold_times_us
    assert (sum(held.counts), held.total, held.minimum, held.maximum) == (3, 8_000, 1_000, 6_000)


@pytest.mark.parametrize("way", AckOutcome)
def test_a_message_is_acknowledged_once(way: AckOutcome) -> None:
    bench = leased()
    refused = [((PUBLISHER, 1), "the message has left the queue")]
    result = bench.queue.acknowledge(marks(1, 1), bench.now, "a", AckOutcome.DONE)
    assert (result.affected_count, result.refusals) == (1, refused)
    again = bench.queue.acknowledge(marks(1), bench.now, "a", way)
    assert (again.affected_count, again.deferred_bookmarks, again.refusals) == (0, [], refused)


def test_an_early_acknowledgement_waits_for_its_message() -> None:
    bench = Bench(deferred_ack_expiration=60 * SECOND)
    bench.consumer("a", 5)
    result = bench.queue.acknowledge(marks(2), bench.now, "a")

    assert (result.affected_count, result.deferred_bookmarks) == (0, marks(2))
    bench.queue.drain_events()
    bench.publish(3)
    assert bench.queue.drain_events() == [Acked(bench.now, marks(2))]
    assert bench.deliver() == {"a": [1, 3]}
    assert bench.queue.counters.acknowledged == 1


def test_what_comes_with_messages_that_leave_at_once_can_be_acknowledged() -> None:
    """So many leave that it is time to forget them, while those behind them are still coming."""
    bench = Bench(deferred_ack_expiration=60 * SECOND)
    bench.queue.acknowledge(marks(*range(1, 1501)), bench.now, "a")
    bench.publish(2000)

    result = bench.queue.acknowledge(marks(*range(1501, 2001)), bench.now, "a")
    assert (result.affected_count, result.refusals, bench.queue.depth) == (500, [], 0)


def test_what_the_log_has_had_is_not_waited_for() -> None:
    """Of messages that have left, the queue need not know anything; of inactive ones neither."""
    for settings, deferred in (({}, []), ({"target_depth": 1000}, marks(1500))):
        bench = Bench(was_recorded=lambda mark: mark[1] <= 1500, **settings)
        assert not bench.queue.acknowledge(marks(900), bench.now).deferred_bookmarks
        bench.publish(1500)
        bench.queue.acknowledge(marks(*range(1001, 1500)), bench.now)
        assert bench.queue.acknowledge(marks(1500), bench.now).deferred_bookmarks == deferred
        assert bench.queue.acknowledge(marks(1501), bench.now).deferred_bookmarks == marks(1501)


def test_what_has_been_sent_once_makes_room_whenever_it_is_acknowledged() -> None:
    """Also when thousands of its publisher that came later have been acknowledged before it."""
    bench = Bench(at_most_once=True, max_per_subscription_backlog=4000)
    consumer = bench.consumer("a", 4000)
    bench.publish(4000)
    bench.deliver()
    for first in range(11, 3991, 10):
        bench.queue.acknowledge(marks(*range(first, first + 10)), bench.now)
    assert consumer.outstanding == 20
    assert bench.queue.acknowledge(marks(*range(1, 11)), bench.now).affected_count == 10
    assert consumer.outstanding == 10


def test_an_early_acknowledgement_is_forgotten_in_the_end() -> None:
    bench = Bench(deferred_ack_expiration=60 * SECOND)
    bench.queue.acknowledge(marks(1), bench.now, "a")
    assert bench.queue.next_deadline == bench.now + 60 * SECOND
    bench.later(60 * SECOND)
    bench.deliver()
    assert bench.queue.next_deadline is None
    bench.consumer("a", 5)
    bench.publish(1)
    assert bench.deliver() == {"a": [1]}


def test_an_early_acknowledgement_that_nobody_has_looked_at_since_is_forgotten_too() -> None:
    bench = Bench(deferred_ack_expiration=60 * SECOND)
    bench.consumer("a", 5)
    bench.queue.acknowledge(marks(1), bench.now, "a")
    bench.later(60 * SECOND)
    bench.publish(1)
    assert bench.deliver() == {"a": [1]}


def test_an_early_acknowledgement_of_an_inactive_message_counts_from_when_that_came() -> None:
    bench = Bench(target_depth=1, deferred_ack_expiration=60 * SECOND)
    bench.publish(2)
    recorded = bench.now
    bench.queue.acknowledge(marks(2), bench.now)
    bench.later(120 * SECOND)
    bench.deliver()
    bench.queue.acknowledge(marks(1), bench.now)
    bench.queue.lifecycle.enqueue_inactive([2], [recorded], PUBLISHER, [2])
    assert bench.queue.depth == 0


def test_a_message_that_stays_away_expires_in_time() -> None:
    bench = Bench(expiration=10 * SECOND)
    bench.consumer("a", 1)
    bench.publish(1)
    bench.deliver()
    bench.queue.acknowledge(marks(1), bench.now, "a", AckOutcome.CANCEL, 60 * SECOND)
    bench.later(10 * SECOND)
    bench.deliver()
    assert (bench.queue.depth, bench.queue.counters.expired) == (0, 1)


@pytest.mark.parametrize(
    ("settings", "acts", "reasons"),
    [
        ({"max_cancels": 2}, ["cancel", "cancel"], ("max_cancels",)),
        ({"max_deliveries": 1}, ["leave"], ("max_deliveries",)),
        ({"max_deliveries": 2}, ["leave", "lapse"], ("max_deliveries",)),
        ({"max_deliveries": 3}, ["cancel", "leave", "lapse"], ("max_deliveries",)),
        (
            {"max_deliveries": 2, "max_cancels": 2},
            ["cancel", "cancel"],
            ("max_cancels", "max_deliveries"),
        ),
        ({}, ["cancel", "leave", "lapse", "expire"], ("forced_expire",)),
        ({"expiration": 1 * SECOND}, ["lapse"], ("time_limit",)),
    ],
)
def test_a_message_that_fails_too_often_is_expired_and_says_why(
    settings: dict[str, Any], acts: list[str], reasons: tuple[str, ...]
) -> None:
    bench = Bench(lease_period=10 * SECOND, **settings)
    bench.publish(1)
    for number, act in enumerate(acts, 1):
        consumer = bench.consumer(f"c{number}", 1)
        assert bench.deliver() == {f"c{number}": [1]}
        assert not [event for event in bench.queue.drain_events() if isinstance(event, Expired)]
        if act == "lapse":
            consumer.set_requested_backlog(0)
            bench.later(10 * SECOND)
            bench.deliver()
        elif act != "leave":
            bench.queue.acknowledge(marks(1), bench.now, f"c{number}", AckOutcome(act))
        bench.queue.detach(consumer, bench.now)

    events = bench.queue.drain_events()
    (event,) = [event for event in events if isinstance(event, Expired)]
    assert not any(isinstance(event, Cancelled) for event in events)
    assert event.bookmarks == marks(1)
    (departure,) = event.departures
    assert departure.reasons == reasons
    assert departure.deliveries == len(acts)
    assert departure.cancels == acts.count("cancel")
    assert departure.last_consumer == f"c{len(acts)}"
    assert bench.queue.depth == 0


@pytest.mark.parametrize(
    ("model", "queue", "own", "expected"),
    [
        ("default", 10, None, 10),
        ("default", 10, 5, 5),
        ("default", 10, 20, 20),
        ("default", None, 20, 20),
        ("default", None, None, None),
        ("queue", 10, 5, 10),
        ("queue", None, 5, None),
        ("latest", 10, 5, 10),
        ("latest", 10, 20, 20),
        ("latest", None, 20, None),
        ("latest", 10, None, 10),
        ("earliest", 10, 5, 5),
        ("earliest", 10, 20, 10),
        ("earliest", None, 20, 20),
        ("earliest", None, None, None),
    ],
)
def test_models_of_expiration(
    model: str, queue: int | None, own: int | None, expected: int | None
) -> None:
    bench = Bench(expiration=None if queue is None else queue * SECOND, expiration_model=model)
    bench.publish(1, lifetimes=[None if own is None else own * SECOND])

    moment = None if expected is None else bench.now + expected * SECOND
    assert bench.queue.next_deadline == moment
    if expected is not None:
        bench.later(expected * SECOND - 1)
        bench.deliver()
        assert bench.queue.depth == 1
        bench.later(1)
        bench.deliver()
        assert bench.queue.depth == 0


def test_a_leased_message_expires_when_its_lease_ends() -> None:
    bench = Bench(lease_period=10 * SECOND, expiration=4 * SECOND)
    bench.consumer("a", 1)
    bench.publish(1)
    bench.deliver()
    bench.later(5 * SECOND)
    bench.deliver()
    assert bench.queue.depth == 1
    assert bench.queue.acknowledge(marks(1), bench.now, "a").affected_count == 1
    assert bench.queue.counters.expired == 0


def test_messages_are_found_by_key_and_one_by_one() -> None:
    bench = leased(strict=True)
    bench.publish(3, sow_keys=[7, 8, 7])
    queue = bench.queue
    entries = queue.lifecycle.entries
    of_seven = [offset for offset in all_offsets(queue) if entries.sow_key(offset) == 7]

    assert queue.acknowledge_offsets(of_seven, bench.now).affected_count == 2
    result = queue.acknowledge_offsets(all_offsets(queue), bench.now, "a")
    assert result.affected_count == 4
    assert [mark for mark, _ in result.refusals] == marks(3, 4)


def test_a_consumer_that_goes_gives_its_room_back() -> None:
    bench = leased()
    consumer: Consumer = bench.consumers["a"]
    bench.queue.detach(consumer, bench.now)
    assert (consumer.outstanding, consumer.slots) == (0, [])
    bench.queue.detach(consumer, bench.now)
    assert bench.queue.leased_count == 2


@pytest.mark.parametrize(
    ("text", "found", "malformed"),
    [
        ("77|1|", [(77, 1)], []),
        ("77|1|,77|2|", [(77, 1), (77, 2)], []),
        (" 77|1| , 77|2|,", [(77, 1), (77, 2)], []),
        ("7|1|,77|2|,7|3|", [(7, 1), (77, 2), (7, 3)], []),
        ("77|1|,77|2|,77|x|", [(77, 1), (77, 2)], ["77|x|"]),
        ("77|18446744073709551615|", [(77, 18446744073709551615)], []),
        ("77|1|,77||", [(77, 1)], ["77||"]),
        ("77|1|20200604T000000.000001Z,8|9", [(77, 1)], ["8|9"]),
        ("0|1|,x,77|-1|", [(0, 1)], ["x", "77|-1|"]),
        (
            "18446744073709551615|18446744073709551616|",
            [],
            ["18446744073709551615|18446744073709551616|"],
        ),
        ("", [], [""]),
    ],
)
def test_lists_of_bookmarks(text: str, found: list[tuple[int, int]], malformed: list[str]) -> None:
    assert parse_bookmarks(text) == (found, malformed)


def test_messages_named_twice_are_acknowledged_once() -> None:
    """What a list says again is refused, like what an earlier one has said."""
    bench = leased()
    result = bench.queue.acknowledge(marks(1, 2, 1, 2, 2), bench.now, "a")
    assert result.affected_count == 2
    assert [mark for mark, _ in result.refusals] == marks(1, 2, 2)


@pytest.mark.parametrize("numbers", [(1, 2), (1, 3), (9, 3), (2, 1)])
@pytest.mark.parametrize("is_together", [False, True])
def test_messages_are_found_whatever_stands_between_them(
    numbers: tuple[int, int], is_together: bool
) -> None:
    """A message of another publisher, numbers that are missing, or numbers that come late."""
    bench = Bench()
    bench.consumer("a", 9)
    enqueue = bench.queue.lifecycle.enqueue
    if is_together:
        enqueue([1, 2], [bench.now] * 2, PUBLISHER, numbers)
        enqueue([3], [bench.now], 88, [1])
    else:
        enqueue([1], [bench.now], PUBLISHER, numbers[:1])
        enqueue([3], [bench.now], 88, [1])
        enqueue([4, 5], [bench.now] * 2, PUBLISHER, [numbers[1], max(numbers) + 1])
    bench.deliver()
    result = bench.queue.acknowledge(marks(*numbers), bench.now, "a")
    assert (result.affected_count, result.refusals) == (2, [])
    assert bench.queue.acknowledge([(88, 1)], bench.now, "a").affected_count == 1
    assert bench.queue.depth == (not is_together)


def test_what_was_sent_is_known_however_much_was_acknowledged_before() -> None:
    """Under at-most-once it has left the queue, and still counts until it is acknowledged."""
    bench = Bench(at_most_once=True, prioritized=True, max_per_subscription_backlog=5000)
    consumer = bench.consumer("a", 5000)
    bench.publish(4000)
    bench.deliver()
    bench.queue.acknowledge(marks(*range(4000, 1000, -1)), bench.now)
    assert bench.queue.acknowledge(marks(*range(1, 1001)), bench.now).affected_count == 1000
    assert consumer.outstanding == 0
