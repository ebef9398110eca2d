"""What tells a message that comes twice from a new one: beside a model that is a set."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import example, given

from server.replication.core import DedupWindow
from server.replication.core.dedup_window import make_peer_dedup_window
from server.util.ranges import Ranges

NUMBERS = st.integers(1, 30)
RUNS = st.lists(NUMBERS, min_size=1, max_size=6) | st.builds(
    lambda first, count: range(first, first + count), NUMBERS, st.integers(1, 6)
)


@given(st.lists(RUNS))
@example([[2, 1, 2]])
def test_each_number_is_new_once(runs: list[list[int] | range]) -> None:
    had: set[int] = set()
    highest = 0
    known = DedupWindow(lambda client: highest)
    for numbers in runs:
        new = [numbers[place] for place in known.new_positions(7, numbers)]
        assert new == [
            number
            for place, number in enumerate(numbers)
            if number not in had and number not in list(numbers)[:place]
        ]
        if new:
            is_run = isinstance(numbers, range) and len(new) == len(numbers)
            known.record_sequences(7, highest, numbers if is_run else new)
            had.update(new)
            highest = max(highest, *new)
        missing = {number for first, last in known.gaps(7) for number in range(first, last + 1)}
        assert missing == set(range(1, highest + 1)) - had


def test_what_an_instance_says_is_what_another_one_knows() -> None:
    table = {1: 10, 2: 5}
    known = DedupWindow(lambda client: table.get(client, 0))
    known.record_sequences(1, 0, (3, 10))
    other = make_peer_dedup_window(known.publisher_windows(table))
    assert list(other.new_positions(1, [3, 4, 9, 10, 11])) == [1, 2, 4]
    assert list(other.new_positions(2, [5, 6])) == [1]
    assert list(other.new_positions(3, [1])) == [0]


def test_gaps_are_bounded_and_what_is_forgotten_counts_as_had() -> None:
    highest = {1: 0, 2: 0}
    known = DedupWindow(lambda client: highest[client], max_gaps_per_publisher=3, max_gaps=4)
    for number in (2, 4, 6, 8):
        known.record_sequences(1, highest[1], (number,))
        highest[1] = number
    assert known.gaps(1) == ((3, 3), (5, 5), (7, 7))
    assert not known.new_positions(1, [1])
    for number in (2, 4):
        known.record_sequences(2, highest[2], (number,))
        highest[2] = number
    assert known.gaps(1) == ((5, 5), (7, 7))
    assert known.gaps(2) == ((1, 1), (3, 3))


@given(st.lists(st.tuples(st.booleans(), NUMBERS, st.integers(0, 5)), max_size=30))
def test_ranges_are_a_set_of_numbers(changes: list[tuple[bool, int, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for adds, first, more in changes:
        if adds:
            ranges.add(first, first + more)
            model.update(range(first, first + more + 1))
        else:
            ranges.remove(first, first + more)
            model.difference_update(range(first, first + more + 1))
        assert {n for one, last in ranges for n in range(one, last + 1)} == model
        pairs = list(ranges)
        assert all(one[1] + 1 < other[0] for one, other in pairwise(pairs))
        assert ranges.overlaps(first, first + more) == adds
        assert ranges.first == min(model, default=None)
