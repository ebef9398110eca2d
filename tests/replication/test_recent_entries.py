"""What was recorded last, against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.replication.core import RecentEntries
from server.storage.journal import JournalOrigin, JournalTopic

TOPICS = [JournalTopic("json", "orders"), JournalTopic("json", "log")]
ORIGINS = [JournalOrigin(), JournalOrigin("", "one")]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),  # the publisher
            st.integers(1, 400),  # its first number
            st.integers(1, 20),  # how many
            st.booleans(),  # one by one
            st.sampled_from(TOPICS),
            st.sampled_from(ORIGINS),
        ),
        max_size=40,
    ),
    st.integers(0, 800),
)
def test_each_is_found_where_it_is(
    notes: list[tuple[int, int, int, bool, JournalTopic, JournalOrigin]], behind: int
) -> None:
    recent = RecentEntries()
    model: dict[tuple[int, int], tuple[int, int, JournalTopic, JournalOrigin]] = {}
    txid = 0
    for client, first, count, singly, topic, origin in notes:
        numbers = [
            number for number in range(first, first + count) if (client, number) not in model
        ]
        if not numbers:
            continue
        begin = txid + 2  # something else is in between
        for place, number in enumerate(numbers):
            txid = begin + place
            checksum = client * 1000 + number
            model[client, number] = checksum, txid, topic, origin
            if singly:
                recent.add_entry(client, number, checksum, txid, topic, origin)
        if not singly:
            checksums = [client * 1000 + number for number in numbers]
            recent.add_batch(client, numbers, checksums, (begin, txid), topic, origin)
    for (client, number), (checksum, own, topic, origin) in model.items():
        found = recent.find(client, number)
        assert found == (checksum, own, own, topic, origin)
    assert recent.find(1, 500) is None
    told = {
        (client, number, origin)
        for client, numbers, origin in recent.entries_after(behind)
        for number in numbers
    }
    expected = {
        (client, number, origin)
        for (client, number), (_, own, _, origin) in model.items()
        if own > behind
    }
    assert expected <= told
    assert told <= {(*name, origin) for name, (*_, origin) in model.items()}


@pytest.mark.parametrize("numbers", [[1, 2, 3], [3, 1, 2]])
def test_entries_of_several_topics_are_found_in_whatever_order(numbers: list[int]) -> None:
    recent = RecentEntries()
    checksums = [10 * number for number in numbers]
    places = [(TOPICS[number % 2], ORIGINS[number % 2]) for number in numbers]
    recent.add_mixed_batch(1, numbers, checksums, (5, 7), (5, 6, 7), places)
    for txid, number, checksum, place in zip((5, 6, 7), numbers, checksums, places, strict=True):
        assert recent.find(1, number) == (checksum, txid, txid, *place)


def test_the_older_half_is_forgotten() -> None:
    recent = RecentEntries(1000)
    for number in range(1, 3001):
        recent.add_entry(7, number, number, number, TOPICS[0], ORIGINS[0])
    assert recent.find(7, 1) is None
    assert recent.find(7, 2500) is not None
