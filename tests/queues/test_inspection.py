"""Looking into a queue."""

from __future__ import annotations

import pytest

from server.queues.core import AckOutcome
from server.queues.core.inspection import available, message, obstacles, status
from tests.queues.support import SECOND, Bench, marks


def seen(bench: Bench) -> list[int]:
    seen: list[int] = available(bench.queue).tolist()
    return seen


def test_a_query_sees_what_is_unleased_in_the_order_of_delivery() -> None:
    bench = Bench(prioritized=True)
    bench.consumer("a", 1)
    bench.publish(5, priorities=[1, 9, 5, 9, None], owners=["", "", "", "", ""])
    assert seen(bench) == [2, 4, 3, 1, 5]
    bench.deliver()
    assert seen(bench) == [4, 3, 1, 5]
    bench.queue.acknowledge(marks(2), bench.now, outcome=AckOutcome.CANCEL, delay=SECOND)
    assert seen(bench) == [4, 3, 1, 5]
    bench.later(SECOND)
    bench.consumers["a"].set_requested_backlog(0)
    bench.deliver()
    assert seen(bench) == [2, 4, 3, 1, 5]


class Recorder:
    """What a view over a queue would have."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: set[int] = set()

    def record_appeared(self, offsets: list[int]) -> None:
        txids = {self.bench.queue.lifecycle.entries.txid(offset) for offset in offsets}
        assert not txids & self.rows
        self.rows |= txids

    def record_disappeared(self, offsets: list[int]) -> None:
        self.rows -= {self.bench.queue.lifecycle.entries.txid(offset) for offset in offsets}


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_watcher_is_told_what_a_query_would_see(prioritized: bool) -> None:
    bench = Bench(prioritized=prioritized, keyed=True, lease_period=SECOND, max_cancels=2)
    recorder = Recorder(bench)
    bench.queue.watch(recorder)  # type: ignore[arg-type]  # a list is a sequence
    bench.consumer("a", 2)
    for step in range(40):
        bench.publish(
            2, keys=[step % 3, 0], lifetimes=[None, 3 * SECOND], owners=["", "x" * (step % 2)]
        )
        held = [txid for txids in bench.deliver().values() for txid in txids]
        assert recorder.rows == set(seen(bench))
        way = (AckOutcome.DONE, AckOutcome.CANCEL, AckOutcome.EXPIRE)[step % 3]
        bench.queue.acknowledge(marks(*held[:1]), bench.now, outcome=way, delay=step % 2 * SECOND)
        bench.queue.transfer(marks(step), ("here", "there")[step % 2], bench.now)
        assert recorder.rows == set(seen(bench))
        bench.later(SECOND // 3)


def test_the_status_counts_everything() -> None:
    bench = Bench()
    bench.consumer("a", 2)
    bench.consumer("b", 7, "nothing")
    bench.publish(4, owners=["", "", "", "there"])
    bench.deliver()
    bench.later(3 * SECOND)
    bench.queue.acknowledge(marks(1), bench.now)
    shown = status(bench.queue, bench.now)

    assert shown.counts_by_state == {"available": 1, "leased": 1, "owned elsewhere": 1}
    assert (shown.depth, shown.oldest_txid, shown.oldest_age) == (3, 2, 3 * SECOND)
    assert shown.oldest_lease_age == 3 * SECOND
    assert [(each.name, each.held_count, each.max_backlog) for each in shown.consumers] == [
        ("a", 1, 2),
        ("b", 0, 7),
    ]


def why(bench: Bench, txid: int) -> list[str]:
    offset = bench.queue.lifecycle.entries.find(marks(txid)[0])
    assert offset is not None
    return [obstacle.kind for obstacle in obstacles(bench.queue, offset, bench.now)]


def test_why_a_message_is_not_delivered() -> None:
    bench = Bench(keyed=True, lease_period=10 * SECOND, max_backlog=4)
    bench.publish(1)
    assert why(bench, 1) == ["no consumer"]
    bench.consumer("a", 1)
    assert why(bench, 1) == []
    bench.deliver()
    assert why(bench, 1) == ["lease"]
    bench.publish(1)
    bench.consumer("b", 1, "odd")
    bench.consumer("c", 0)
    bench.deliver()
    assert why(bench, 2) == ["backlog", "filter", "backlog"]
    bench.queue.acknowledge(marks(1), bench.now, outcome=AckOutcome.CANCEL, delay=SECOND)
    assert why(bench, 1) == ["delay"]
    bench.publish(4, keys=[5, 5, 0, 0], owners=["", "", "there", ""], barriers=[False] * 3 + [True])
    assert why(bench, 4) == ["key"]
    assert why(bench, 5) == ["owner"]
    assert why(bench, 6) == ["barrier"]
    bench.publish(1)
    assert why(bench, 7) == ["barrier"]
    limited = Bench(max_backlog=1)
    limited.consumer("a", 5)
    limited.publish(2)
    limited.deliver()
    assert why(limited, 2) == ["queue backlog"]
    urgent = Bench(prioritized=True)
    urgent.consumer("a", 1)
    urgent.publish(3, priorities=[1, 2, 3])
    urgent.deliver()
    assert why(urgent, 1) == ["priority"]


def test_a_message_that_has_left_has_no_status() -> None:
    bench = Bench()
    bench.publish(1)
    assert message(bench.queue, 0) is not None
    bench.queue.acknowledge(marks(1), bench.now)
    assert message(bench.queue, 0) is None
