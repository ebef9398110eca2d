"""Where bookmark subscriptions resume, and which messages they have had."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.client import EPOCH, MOST_RECENT, NOW, BookmarkStore
from amperage.client.bookmarks import BookmarkTrail, places_in


def test_nothing_received_begins_as_it_was_to_begin() -> None:
    assert BookmarkTrail("20200101T000000").resume_from == "20200101T000000"


def test_now_is_when_it_was_first_asked_for() -> None:
    trail = BookmarkTrail(NOW)
    trail.persisted("5|5|")
    assert trail.resume_from == "5|5|"
    replay = BookmarkTrail(EPOCH)
    replay.persisted("5|5|")
    assert replay.resume_from == EPOCH, "the replay may not have got there"


def test_places_are_where_to_go_on_in_each_log() -> None:
    """They go forward only; what came last stays among the points, for logs without a place."""
    trail = BookmarkTrail(NOW)
    trail.persisted(None, ["100|7|", "200|3|"])
    assert trail.resume_from == "100|7|,200|3|"
    assert trail.is_new("5|5|")
    trail.persisted("5|4|", ["200|2|"])
    assert set(trail.resume_from.split(",")) == {"100|7|", "200|3|", "5|4|", "5|5|"}
    replay = BookmarkTrail(EPOCH)
    replay.persisted("5|5|", ["100|0|"])
    assert replay.resume_from == "100|0|,5|5|,0", "nothing has come yet"
    for log in range(1000, 1100):
        trail.persisted(None, [f"{log}|1|"])
    assert len(trail.resume_from.split(",")) < 20, "of very many logs, the last are known"


def test_publishers_that_were_heard_lately_are_among_the_points() -> None:
    """Each server has them in an order of its own."""
    trail = BookmarkTrail(EPOCH)
    for bookmark in ("1|1|", "2|1|", "1|2|", "3|1|"):
        trail.is_new(bookmark)
    assert set(trail.resume_from.split(",")) == {"1|2|", "2|1|", "3|1|"}
    assert all(trail.is_new(f"3|{number}|") for number in range(2, 20_100))
    assert trail.resume_from == "3|20099|", "the others have been silent for long"


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ("places=[1|2|,3|4|]", ("1|2|", "3|4|")),
        ("max_backlog=10,places=[1|2|]", ("1|2|",)),
        ("places=[]", ()),
        ("max_backlog=10", ()),
        (None, ()),
    ],
)
def test_places_are_told_in_options(options: str | None, places: tuple[str, ...]) -> None:
    assert places_in(options) == places


def test_a_bookmark_of_another_make_is_taken_as_it_is() -> None:
    trail = BookmarkTrail(EPOCH)
    assert (trail.is_new("20200101T000000"), trail.is_new("20200101T000000")) == (True, True)
    assert trail.resume_from == "20200101T000000"


def test_a_store_follows_each_subscription() -> None:
    store = BookmarkStore()
    for name, start in (("a", EPOCH), ("b", NOW)):
        store.keep(name, store.trail(name, start))
    store.trail("a", MOST_RECENT).is_new("1|1|")
    assert [store.most_recent(name) for name in "abc"] == ["1|1|", NOW, EPOCH]
    assert store.trail("a", MOST_RECENT).resume_from == "1|1|"
    assert not store.trail("a", MOST_RECENT).is_new("1|1|")
    assert store.trail("a", EPOCH).is_new("1|1|"), "a replay that is asked for is whole"
    assert store.trail(None, MOST_RECENT).resume_from == EPOCH


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=60),
    st.integers(0, 60),
)
def test_each_message_of_each_publisher_is_new_once(
    publishes: list[tuple[int, int]], behind: int
) -> None:
    """Two logs with the same messages, each publisher's in order, and a switch between them."""
    log = [f"{publisher}|{number}|" for number, (publisher, _) in enumerate(publishes)]
    other = sorted(log, key=lambda bookmark: bookmark.split("|")[0])  # another order of publishers
    trail = BookmarkTrail(EPOCH)
    assert all(trail.is_new(bookmark) for bookmark in log[:behind])
    received = log[:behind] + [bookmark for bookmark in other if trail.is_new(bookmark)]
    assert sorted(received) == sorted(log)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), max_size=60, unique=True),
    st.integers(0, 60),
    st.randoms(use_true_random=False),
)
def test_messages_that_come_late_are_new_once(
    publishes: list[tuple[int, int]], behind: int, random: Random
) -> None:
    """Two logs with the same messages in any order, and a switch."""
    log = [f"{publisher}|{number}|" for publisher, number in publishes]
    other = random.sample(log, len(log))
    trail = BookmarkTrail(EPOCH)
    assert all(trail.is_new(bookmark) for bookmark in log[:behind])
    received = log[:behind] + [bookmark for bookmark in other if trail.is_new(bookmark)]
    assert sorted(received) == sorted(log)
    assert not any(trail.is_new(bookmark) for bookmark in log)


def test_what_is_left_out_is_remembered_within_limits() -> None:
    """The last thousand of a publisher: what was before that counts as had."""
    trail = BookmarkTrail(EPOCH)
    assert all(trail.is_new(f"1|{number}|") for number in range(0, 10_000, 2))
    assert not trail.is_new("1|1|")
    assert trail.is_new("1|9997|")
    for publisher in range(2, 1000):
        assert all(trail.is_new(f"{publisher}|{number}|") for number in range(0, 1000, 2))
    assert not trail.is_new("1|9995|"), "it has been silent longest"
    assert trail.is_new("999|1|")
