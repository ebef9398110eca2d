"""Moments at which something happens to messages, when there are very many close together."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from server.queues.core.timer_buckets import TimerBuckets

SECOND = 1 << 20


def test_what_falls_due_at_one_moment_comes_a_few_at_a_time() -> None:
    """However many there are, a call looks at no more of them than it is allowed to."""
    count, most, looks = 10_000, 256, 0

    def moment_of(_offset: int) -> int:
        nonlocal looks
        looks += 1
        return 5 * SECOND + 7

    moments = TimerBuckets(moment_of)
    for offset in range(count):
        moments.add(offset, 5 * SECOND + 7)
    assert moments.pop_due(5 * SECOND, most) == []
    came: list[int] = []
    while len(came) < count:
        assert moments.next_deadline is not None
        looks = 0
        came += moments.pop_due(6 * SECOND, most)
        assert looks <= most
    assert came == list(range(count))
    assert moments.next_deadline is None


def test_those_that_are_not_due_are_not_looked_at_again_before_they_are() -> None:
    """Also if there are very many of them in the second at hand."""
    of = {offset: 5 * SECOND + 1000 + offset for offset in range(5_000)}
    moments = TimerBuckets(of.__getitem__)
    for offset, moment in of.items():
        moments.add(offset, moment)
    now = 5 * SECOND + 10
    calls = 0
    while moments.next_deadline is not None and moments.next_deadline <= now:
        assert moments.pop_due(now, 256) == []
        calls += 1
    assert calls <= 5_000 // 256 + 1
    assert moments.next_deadline == 5 * SECOND + 1000


@given(st.randoms(use_true_random=False), st.integers(1, 20))
def test_every_place_comes_once_when_it_is_due(chance: random.Random, most: int) -> None:
    of: dict[int, int] = {}
    moments = TimerBuckets(lambda offset: of.get(offset, 0))
    came: list[int] = []
    now = 0
    for offset in range(60):
        of[offset] = now + chance.randrange(3 * SECOND)
        moments.add(offset, of[offset])
        if chance.random() < 0.3:
            now += chance.randrange(SECOND)
        for one in moments.pop_due(now, most):
            assert of.pop(one) <= now
            came.append(one)
    while of:
        assert moments.next_deadline is not None
        now = max(now, moments.next_deadline)
        for one in moments.pop_due(now, most):
            assert of.pop(one) <= now
            came.append(one)
    assert sorted(came) == list(range(60))
