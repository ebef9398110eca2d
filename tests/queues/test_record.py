"""What a queue wants recorded brings it back."""

from __future__ import annotations

from server.queues.core import (
    Acked,
    AckOutcome,
    Cancelled,
    Deferred,
    Expired,
    Leased,
    MessageDetails,
    Queue,
    QueueEvent,
    QueueSettings,
    Released,
    RemovalDetails,
    Sent,
    Transferred,
    decode,
    encode,
)
from server.queues.core.inspection import all_offsets, message
from tests.queues.support import PUBLISHER, SECOND, Bench, CountingMatching, marks

LARGEST = 2**64 - 1


def test_every_event_is_read_back_as_it_was() -> None:
    pairs = [(LARGEST, 1), (1, LARGEST)]
    departures = [
        RemovalDetails(5, ("time_limit", "max_cancels"), 3, 2, "cü"),
        RemovalDetails(6, ()),
    ]
    events: list[QueueEvent] = [
        Acked(1, pairs),
        Deferred(2, pairs),
        Expired(3, pairs, departures),
        Cancelled(4, pairs, [1, 2], [4, 9]),
        Leased(5, pairs, "consumer"),
        Sent(6, pairs),
        Released(7, pairs),
        Transferred(8, pairs, "there", [1, 2]),
    ]
    assert [decode(encode(event)) for event in events] == events


def folded(settings: QueueSettings, log: list[tuple[int, int] | QueueEvent]) -> Queue:
    queue = Queue(settings, CountingMatching, "here")
    for entry in log:
        if isinstance(entry, tuple):
            txid, time = entry
            queue.lifecycle.enqueue([txid], [time], PUBLISHER, [txid])
        else:
            queue.replay(decode(encode(entry)))
    return queue


def txids(queue: Queue) -> list[int]:
    return [queue.lifecycle.entries.txid(offset) for offset in all_offsets(queue)]


def test_what_is_unleased_leaves_no_trace_in_the_record_unless_something_counts_it() -> None:
    for limit, kinds in ((0, []), (3, [Leased])):
        bench = Bench(max_deliveries=limit, lease_period=SECOND)
        consumer = bench.consumer("a", 2)
        bench.publish(2)
        bench.deliver()
        bench.queue.detach(consumer, bench.now)
        assert [type(event) for event in bench.queue.drain_events()] == kinds


def test_at_most_once_is_recorded_with_the_delivery() -> None:
    bench = Bench(at_most_once=True)
    bench.consumer("a", 2)
    bench.publish(3)
    bench.deliver()
    (event,) = bench.queue.drain_events()
    assert event == Sent(bench.now, marks(1, 2))
    bench.queue.acknowledge(marks(1), bench.now)
    assert bench.queue.drain_events() == [], "the acknowledgement only makes room"


def test_counts_survive_and_a_message_that_was_delivered_too_often_goes() -> None:
    settings = QueueSettings(max_deliveries=2, max_cancels=5)
    log: list[tuple[int, int] | QueueEvent] = [
        (1, SECOND),
        (2, SECOND),
        Leased(SECOND, marks(1, 2), "a"),
        Cancelled(SECOND, marks(2), [1], [SECOND]),
        Leased(SECOND, marks(1), "b"),
    ]
    queue = folded(settings, log)
    queue.finish_recovery(2 * SECOND)

    (event,) = queue.drain_events()
    assert isinstance(event, Expired)
    assert event.departures == [RemovalDetails(1, ("max_deliveries",), 2, 0, "b")]
    (offset,) = all_offsets(queue)
    status = message(queue, offset)
    assert status is not None
    assert (status.txid, status.deliveries, status.cancels) == (2, 1, 1)


def test_a_message_of_another_instance_that_was_delivered_too_often_stays_that_one_s() -> None:
    queue = Queue(QueueSettings(max_deliveries=2), CountingMatching, "here")
    queue.lifecycle.enqueue([1], [1], PUBLISHER, [1], MessageDetails(owners=["there"]))
    for consumer in ("a", "b"):
        queue.replay(Leased(1, marks(1), consumer))
    queue.finish_recovery(2 * SECOND)
    assert (queue.drain_events(), queue.depth) == ([], 1)


def test_a_delay_survives() -> None:
    queue = folded(QueueSettings(), [(1, 1), Cancelled(5, marks(1), [3], [9])])
    bench = Bench()
    bench.queue = queue
    bench.consumer("a", 1)
    bench.now = 8
    assert bench.deliver() == {}
    assert queue.next_deadline == 9
    bench.now = 9
    assert bench.deliver() == {"a": [1]}


def test_any_part_of_a_record_brings_back_everything_that_it_does_not_say_is_done() -> None:
    """At-least-once: a record that lost its end gives messages again, and loses none."""
    bench = Bench()
    bench.consumer("a", 3)
    log: list[tuple[int, int] | QueueEvent] = []
    for txid in range(1, 30):
        bench.publish(1)
        log.append((txid, bench.now))
        bench.deliver()
        if txid % 3 == 0:
            bench.queue.acknowledge(marks(txid - 2), bench.now)
        if txid % 5 == 0:
            bench.queue.acknowledge(marks(txid + 2), bench.now)
        log += bench.queue.drain_events()
    for end in range(len(log)):
        part = log[:end]
        came = {entry[0] for entry in part if isinstance(entry, tuple)}
        acked = {
            mark[1]
            for event in part
            if isinstance(event, Acked | Deferred)
            for mark in event.bookmarks
        }
        assert txids(folded(QueueSettings(), part)) == sorted(came - acked)


def test_the_record_is_needed_from_the_oldest_message_on() -> None:
    bench = Bench()
    bench.consumer("a", 10)
    bench.publish(5)
    bench.deliver()
    bench.queue.acknowledge(marks(1, 2, 4, 9), bench.now)
    deferred = list(bench.queue.lifecycle.early_acks)
    assert (bench.queue.oldest_txid, deferred) == (3, [((PUBLISHER, 9), bench.now)])

    queue = Queue(QueueSettings(), CountingMatching)
    queue.restore_early_acks(deferred)
    queue.lifecycle.enqueue([3, 4, 5], [1, 1, 1], PUBLISHER, [3, 4, 5])
    queue.replay(Acked(bench.now, marks(1, 2, 4)))
    queue.lifecycle.enqueue([9, 10], [1, 1], PUBLISHER, [9, 10])
    assert txids(queue) == [3, 5, 10]
    assert (queue.oldest_txid, list(queue.lifecycle.early_acks)) == (3, [])


def test_an_empty_queue_needs_no_record() -> None:
    bench = Bench()
    assert bench.queue.oldest_txid is None
    bench.publish(2000)
    bench.queue.acknowledge(marks(*range(1, 2001)), bench.now)
    assert bench.queue.oldest_txid is None


def test_messages_beyond_the_target_depth_are_read_again_later() -> None:
    bench = Bench(target_depth=4)
    bench.consumer("a", 2, "even")
    bench.publish(10)
    queue, lifecycle = bench.queue, bench.queue.lifecycle
    assert (
        queue.depth,
        lifecycle.inactive_count,
        lifecycle.resume_txid,
        lifecycle.refill_count,
    ) == (
        4,
        6,
        5,
        0,
    )
    assert bench.deliver() == {"a": [2, 4]}
    assert queue.acknowledge(marks(6), bench.now).deferred_bookmarks == marks(6)
    queue.acknowledge(marks(1, 2, 3), bench.now)

    assert lifecycle.refill_count == 3
    lifecycle.enqueue_inactive([5, 6, 7], [bench.now] * 3, PUBLISHER, [5, 6, 7])
    assert (
        queue.depth,
        lifecycle.inactive_count,
        lifecycle.resume_txid,
        lifecycle.refill_count,
    ) == (
        3,
        3,
        8,
        1,
    )
    lifecycle.enqueue_inactive([8], [bench.now], PUBLISHER, [8])
    assert bench.deliver() == {"a": [8]}
    bench.publish(1)
    assert (lifecycle.inactive_count, lifecycle.resume_txid) == (3, 9), (
        "what comes waits behind the others"
    )


def test_what_comes_waits_behind_inactive_messages_although_there_is_room() -> None:
    bench = Bench(target_depth=2)
    bench.publish(3)
    bench.queue.acknowledge(marks(1, 2), bench.now)
    bench.publish(1)
    assert (bench.queue.depth, bench.queue.lifecycle.inactive_count) == (0, 2)
    assert bench.queue.oldest_txid == 3, "the log is needed from there on"


def test_what_was_done_to_messages_that_are_inactive_again_after_a_restart_stays_done() -> None:
    bench = Bench(target_depth=2)
    bench.consumer("a", 2)
    bench.publish(5)
    bench.queue.acknowledge(marks(1, 2), bench.now)
    bench.queue.lifecycle.enqueue_inactive([3, 4], [bench.now] * 2, PUBLISHER, [3, 4])
    bench.queue.acknowledge(marks(3), bench.now)
    bench.queue.acknowledge(marks(4), bench.now, outcome=AckOutcome.EXPIRE)

    came: list[tuple[int, int] | QueueEvent] = [(txid, bench.now) for txid in range(1, 6)]
    queue = folded(QueueSettings(target_depth=2), [*came, *bench.queue.drain_events()])
    lifecycle = queue.lifecycle
    assert (queue.depth, lifecycle.inactive_count, lifecycle.resume_txid) == (0, 3, 3)
    lifecycle.enqueue_inactive([3, 4], [bench.now] * 2, PUBLISHER, [3, 4])
    lifecycle.enqueue_inactive([5], [bench.now], PUBLISHER, [5])
    assert txids(queue) == [5]


def test_publishers_of_whom_nothing_is_left_are_forgotten() -> None:
    bench = Bench()
    bench.publish(1)
    for client in range(1000, 26_000):
        bench.queue.lifecycle.enqueue([client], [bench.now], client, [1])
        bench.queue.acknowledge([(client, 1)], bench.now)
    bench.publish(1)

    assert (
        sum(
            bench.queue.lifecycle.entries.find_publisher(client) is not None
            for client in range(26_000)
        )
        < 11_000
    )
    assert bench.queue.acknowledge(marks(1, 2), bench.now).affected_count == 2


def test_a_message_that_another_instance_owns_is_not_delivered_here() -> None:
    bench = Bench()
    bench.consumer("a", 5)
    bench.publish(3, owners=["", "there", ""])
    assert bench.queue.transfer(marks(1, 3), "here", bench.now) == []
    assert bench.deliver() == {"a": [1, 3]}
    assert bench.queue.transfer(marks(1, 2, 7), "here", bench.now) == marks(2)
    assert bench.deliver() == {"a": [2]}
    assert bench.queue.transfer(marks(2), "there", bench.now) == [], "somebody has it"

    queue = Queue(QueueSettings(), CountingMatching, "here")
    queue.lifecycle.enqueue([2], [1], PUBLISHER, [2], MessageDetails(owners=["there"]))
    for event in bench.queue.drain_events():
        queue.replay(event)
    (offset,) = all_offsets(queue)
    assert queue.lifecycle.entries.owner(offset) == ""


def test_what_expires_at_once_is_recorded_in_pieces() -> None:
    """An entry of the log has to fit into a file of it."""
    bench = Bench(expiration=SECOND)
    bench.publish(10_000)
    bench.now += 2 * SECOND
    bench.deliver()
    events = bench.queue.drain_events()
    assert len(events) > 1
    assert max(len(event.bookmarks) for event in events) < 5_000
    assert sum(len(event.bookmarks) for event in events) == 10_000
