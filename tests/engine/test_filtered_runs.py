"""Messages that come together go where they go when they come one by one, in the same order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.support import Core
from tests.support.chances import examples
from tests.support.raw import frame

FILTERS = [
    None,
    "/n > 3",
    "/n > 3 AND /n <= 6",
    "/n IN (2, 3, 5) AND /w != 'b'",
    "/w = 'b' AND /n < 5 AND /n > 1",
    "NOT /w = 'a'",
    "/w LIKE '^a'",
    "/n = 4 OR /w = 'b'",
    "LENGTH(/w) = 1",
]
BY_VALUE = [f"/n = {one}" for one in (1, 2, "'2'", 2.5, "'5'", 5, 7)] + [
    "/n IN (2, 3, 5)",
    "/n IN ('5', 'x')",
    "/n = 3 AND /n = 3",
]
"""Filters that are found by the value of one field."""
NUMBERS: list[Any] = [0, 1, 2, 3, 4, 5, 6, 7, None, "5", "x", [2, 4], 2.5]
WORDS = ["a", "b", "ab"]
WARM = 256
HEARD = ["a", "b", "^[abc]$", "^[abc]$", "^[abc]$"]
"""Topics of subscriptions."""
TOPICS = ["a", "abc", "ab", "cbaac"]
"""Topics of messages, in turns."""


def subscribing(filters: Sequence[str | None]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.just("subscribe"),
        st.integers(0, 1),
        st.sampled_from(["1", "2", "3", "4"]),
        st.sampled_from(filters),
        st.sampled_from(["replace", "replace", "replace,timestamp"]),
        st.sampled_from(HEARD),
    )


publishing = st.tuples(
    st.just("publish"),
    st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(WORDS)), min_size=1, max_size=9),
    st.sampled_from([1, 1, 30, WARM]),
    st.sampled_from(TOPICS),
)

Step = tuple[Any, ...]


def received(steps: Sequence[Step], *, together: bool) -> list[tuple[list[Any], int]]:
    """What two subscribers get, and how many messages are counted for them."""
    core = Core()
    peers = [core.log_on("one"), core.log_on("two")]
    publisher = core.log_on("publisher")
    for action, *arguments in steps:
        if action == "subscribe":
            number, sub_id, filter_, options, topic = arguments
            command = {"c": "subscribe", "t": topic, "sub_id": sub_id, "o": options}
            peers[number].send(command if filter_ is None else {**command, "filter": filter_})
            continue
        values, times, topics = arguments
        bodies = [json.dumps({"n": n, "w": w}).encode() for n, w in values] * times
        frames = [
            frame({"c": "p", "t": topic}, body)
            for topic, body in zip(cycle(topics), bodies, strict=False)
        ]
        for piece in [b"".join(frames)] if together else frames:
            publisher.send_bytes(piece)
        while publisher.is_paused:
            core.clock.turn()
        core.engine.flush()
    return [(peer.take_frames(), peer.messages_out) for peer in peers]


@settings(max_examples=examples(100))
@given(st.lists(subscribing(BY_VALUE) | subscribing([*BY_VALUE, None]) | publishing, max_size=12))
@example(
    [
        ("subscribe", 0, "1", "/n = 2", "replace", "^[abc]$"),
        ("subscribe", 0, "2", "/n = '2'", "replace", "^[abc]$"),
        ("subscribe", 1, "1", "/n = 5", "replace,timestamp", "^[abc]$"),
        ("subscribe", 1, "2", "/n = 7", "replace", "^[abc]$"),
        ("publish", [(2, "b"), (5, "b"), (1, "a"), ("5", "b"), (7, "a"), ([2, 4], "ab")], 30, "a"),
        ("subscribe", 1, "3", None, "replace", "^[abc]$"),
        ("publish", [(2, "b"), (5, "b"), (1, "a"), ("5", "b"), (7, "a"), ([2, 4], "ab")], 1, "ab"),
    ]
)
def test_what_is_found_by_value_is_the_same_together(steps: list[Step]) -> None:
    assert received(steps, together=True) == received(steps, together=False)


@settings(max_examples=examples(100))
@given(st.lists(subscribing(FILTERS) | publishing, max_size=9))
@example(
    [
        ("subscribe", 0, "1", "/n > 3", "replace", "^[abc]$"),
        ("subscribe", 0, "2", "/n > 3", "replace,timestamp", "^[abc]$"),
        ("subscribe", 1, "1", "/w = 'b'", "replace", "^[abc]$"),
        (
            "publish",
            [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a"), ([2, 4], "ab")],
            WARM,
            "abc",
        ),
        ("subscribe", 1, "1", None, "replace", "^[abc]$"),
        ("publish", [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a")], WARM, "a"),
        ("subscribe", 0, "2", "/w LIKE '^a'", "replace", "^[abc]$"),
        ("publish", [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a")], WARM, "ab"),
    ]
)
def test_together_or_one_by_one_is_the_same(steps: list[Step]) -> None:
    assert received(steps, together=True) == received(steps, together=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, "1", None, "a"), (0, "2", "/n > 3", "b")),
        ((0, "1", "/n > 3", "a"), (1, "1", "/w = 'b'", "b")),
        ((0, "1", None, "^[abc]$"), (0, "2", "/n > 3", "^[abc]$")),
        ((0, "1", None, "^[abc]$"), (1, "2", "/n > 3", "^[abc]$")),
        ((0, "1", "/n = 4", "^[abc]$"), (1, "1", "/n = 4", "a")),
        ((0, "1", "/n = 4", "^[abc]$"), (1, "1", "/n = 5", "^[abc]$")),
        ((0, "1", "LENGTH(/w) = 1", "^[abc]$"), (1, "1", "/n > 3", "^[abc]$")),
    ],
)
def test_topics_in_turns_whose_subscriptions_differ(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    """Each connection gets the messages of all topics in their order, and no others."""
    values = [(4, "b"), (1, "a"), (5, "ab"), (2, "b"), (6, "a"), (3, "b"), (4, "a")]
    steps: list[Step] = [
        ("subscribe", number, sub_id, filter_, "replace", topic)
        for number, sub_id, filter_, topic in (first, second)
    ]
    steps += [("publish", values, WARM, "ab"), ("publish", values, 30, "abcc")]
    assert received(steps, together=True) == received(steps, together=False)
