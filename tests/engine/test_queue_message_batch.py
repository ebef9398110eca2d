"""What a queue counts for messages that it keeps at hand."""

from __future__ import annotations

import tracemalloc

import pytest

from server.queues.topic.message_batch import (
    QueueBatchIndex,
    QueueMessageBatch,
    make_recorded_batch,
)
from server.topics.log_feed import RecordedBatch
from server.topics.subscriptions.delivery.envelope import Envelope

_COUNT = 20_000
_FIRST = 1_000_000


def kept(first: int, together: int, length: int) -> QueueMessageBatch:
    numbers = range(first, first + together)
    bodies = [(b"%d" % number).ljust(length) for number in numbers]
    envelope = Envelope(None, float(first))
    txids, sequences = list(numbers), [number + _FIRST for number in numbers]
    return make_recorded_batch(
        RecordedBatch("q", bodies, envelope, txids, first, 7, sequences, (), 0)
    )


@pytest.mark.parametrize("length", [8, 300])
@pytest.mark.parametrize("together", [1, 10, 250])
def test_messages_count_with_what_holds_them(together: int, length: int) -> None:
    """So that small ones, which take little but many objects, are not kept without end."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = QueueBatchIndex()
        batches = []
        for first in range(_FIRST, _FIRST + _COUNT, together):
            batches.append(kept(first, together, length))
            index.add(batches[-1])
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = sum(batch.memory_bytes for batch in batches)
    assert 0.7 < counted / used < 1.4
