"""What an offset says of the messages of a batch."""

from __future__ import annotations

import random

import pytest

from pipeline.amps.offsets import STEP, BatchPlan, LastMessages, digest_of, ranges_of


@pytest.mark.parametrize("rows", [1, STEP - 1, STEP, 3 * STEP + 7])
@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_each_range_says_which_messages_it_has(rows: int, partitions: int) -> None:
    """However they come; and in whichever order they are elsewhere."""
    chance = random.Random(rows)
    bookmarks = [f"{chance.randrange(5)}|{number}|" for number in range(rows)]
    plan = BatchPlan(has_digests=True)
    position = 0
    while position < rows:
        size = chance.randrange(1, 2 * STEP)
        plan.add(bookmarks[position : position + size])
        position += size
    ranges = ranges_of(plan.offset(partitions))
    assert len(ranges) == min(partitions, -(-rows // STEP))
    position = 0
    for one in ranges:
        some = bookmarks[position : position + one.rows]
        position += one.rows
        assert (one.begin, one.end) == (some[0], some[-1])
        chance.shuffle(some)
        assert one.digest == digest_of(some)
        some[0] = "9|9|"
        assert one.digest != digest_of(some)
    assert position == rows


def test_a_batch_without_digests_has_ranges_all_the_same() -> None:
    """As it has in checkpoints of earlier versions, and with one server."""
    plan = BatchPlan(has_digests=False)
    plan.add(["1|1|", "1|2|"])
    offset = plan.offset(2)
    assert offset == {"bookmark": "1|2|", "ranges": {"[1|1|:1|2|]": 2}}
    assert [one.digest for one in ranges_of(offset)] == [None]


def test_the_last_messages_are_known_as_a_stream_goes_on() -> None:
    last = LastMessages(10)
    bookmarks: list[str] = []
    assert last.end is None
    for number in range(100):
        bookmarks += [f"1|{number}|"] * (number % 4)
        last.add([f"1|{number}|"] * (number % 4))
        end = last.end
        if end is not None:
            assert end.rows <= 20
            assert (end.first, end.digest) == (
                bookmarks[-end.rows],
                digest_of(bookmarks[-end.rows :]),
            )
            assert last.last == bookmarks[-1]
    last.reset(["2|1|"])
    assert last.end == ("2|1|", 1, digest_of(["2|1|"]))
