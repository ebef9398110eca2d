"""Who gets which message: backlogs, filters, order, fairness."""

from __future__ import annotations

from tests.queues.support import Bench, marks


def test_messages_are_delivered_in_order_up_to_the_backlog() -> None:
    bench = Bench()
    bench.consumer("a", backlog=3)
    bench.publish(5)

    assert bench.deliver() == {"a": [1, 2, 3]}
    bench.queue.acknowledge(marks(2), bench.now, "a")
    assert bench.deliver() == {"a": [4]}
