"""Which numbers of publishers are settled: never too many, and all of them in the end."""

from __future__ import annotations

from random import Random

import pytest

from server.topics.durable_watermark import DurableWatermarks
from tests.support.chances import examples


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(20, 4)))
def test_it_is_never_said_of_a_number_that_is_not(seed: int) -> None:
    random = Random(seed)
    watermarks, settled, txid = DurableWatermarks(), 0, 0
    published: dict[int, list[tuple[int, int]]] = {}  # by client: number, txid
    for _ in range(5000):
        client = random.randrange(5) if random.random() < 0.9 else random.randrange(3000)
        txid += random.randrange(1, 4)
        numbers = published.setdefault(client, [])
        before = numbers[-1][0] if numbers else 0
        numbers.append((before + random.randrange(1, 4), txid))
        watermarks.record_publish(client, before, numbers[-1][0], txid, settled)
        if random.random() < 0.005:
            settled = random.randrange(settled, txid + 1)
        client = random.choice(list(published))
        last = published[client][-1][0]
        told = watermarks.settled_sequence(client, last, settled)
        assert told <= max((one for one, at in published[client] if at <= settled), default=0)
        if published[client][-1][1] <= settled:
            assert told == last
    for client, numbers in published.items():
        assert watermarks.settled_sequence(client, numbers[-1][0], txid) == numbers[-1][0]


def test_of_many_that_are_not_settled_the_last_ones_are_told_apart() -> None:
    watermarks = DurableWatermarks()
    for number in range(1, 10_001):
        watermarks.record_publish(7, number - 1, number, number, 0)
    assert watermarks.settled_sequence(7, 10_000, 5_000) >= 4_000
    assert watermarks.settled_sequence(7, 10_000, 9_999) >= 9_900
