"""Where bookmark subscriptions resume, and which messages they have had."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from client import EPOCH, MOST_RECENT, NOW, BookmarkStore
from client.bookmarks import BookmarkTrail


def test_nothing_received_begins_as_it_was_to_begin() -> None:
    assert BookmarkTrail("20200101T000000").resume_from == "20200101T000000"


def test_now_is_when_it_was_first_asked_for() -> None:
    trail = BookmarkTrail(NOW)
    trail.persisted("5|5|")
    assert trail.resume_from == "5|5|"
    replay = BookmarkTrail(EPOCH)
    replay.persisted("5|5|")
    assert replay.resume_from == EPOCH, "the replay may not have got there"


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
