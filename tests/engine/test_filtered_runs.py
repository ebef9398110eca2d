"""Messages that come together go where they go when they come one by one, in the same order."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.support import Core
from tests.support.chances import examples

HEADER = b'{"c":"p","t":"a"}'
FILTERS = [
    None,
    "/n > 3",
    "/n > 3 AND /n <= 6",
    "/n IN (2, 3, 5) AND /w != 'b'",
    "/w = 'b' AND /n < 5 AND /n > 1",
    "NOT /w = 'a'",
    "/w LIKE '^a'",
    "/n = 4 OR /w = 'b'",
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


def subscribing(filters: Sequence[str | None]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.just("subscribe"),
        st.integers(0, 1),
        st.sampled_from(["1", "2", "3", "4"]),
        st.sampled_from(filters),
        st.sampled_from(["replace", "replace", "replace,timestamp"]),
    )


publishing = st.tuples(
    st.just("publish"),
    st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(WORDS)), min_size=1, max_size=9),
    st.sampled_from([1, 1, 30, WARM]),
)

Step = tuple[Any, ...]


def received(steps: Sequence[Step], *, together: bool) -> list[tuple[list[Any], int]]:
    """What two subscribers get, and how many messages are counted for them."""
    core = Core()
    peers = [core.log_on("one"), core.log_on("two")]
    publisher = core.log_on("publisher")
    for action, *arguments in steps:
        if action == "subscribe":
            number, sub_id, filter_, options = arguments
            command = {"c": "subscribe", "t": "a", "sub_id": sub_id, "o": options}
            peers[number].send(command if filter_ is None else {**command, "filter": filter_})
            continue
        values, times = arguments
        bodies = [json.dumps({"n": n, "w": w}).encode() for n, w in values] * times
        frames = [struct.pack(">I", len(HEADER) + len(b)) + HEADER + b for b in bodies]
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
        ("subscribe", 0, "1", "/n = 2", "replace"),
        ("subscribe", 0, "2", "/n = '2'", "replace"),
        ("subscribe", 1, "1", "/n = 5", "replace,timestamp"),
        ("subscribe", 1, "2", "/n = 7", "replace"),
        ("publish", [(2, "b"), (5, "b"), (1, "a"), ("5", "b"), (7, "a"), ([2, 4], "ab")], 30),
        ("subscribe", 1, "3", None, "replace"),
        ("publish", [(2, "b"), (5, "b"), (1, "a"), ("5", "b"), (7, "a"), ([2, 4], "ab")], 1),
    ]
)
def test_what_is_found_by_value_is_the_same_together(steps: list[Step]) -> None:
    assert received(steps, together=True) == received(steps, together=False)


@settings(max_examples=examples(100))
@given(st.lists(subscribing(FILTERS) | publishing, max_size=9))
@example(
    [
        ("subscribe", 0, "1", "/n > 3", "replace"),
        ("subscribe", 0, "2", "/n > 3", "replace,timestamp"),
        ("subscribe", 1, "1", "/w = 'b'", "replace"),
        ("publish", [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a"), ([2, 4], "ab")], WARM),
        ("subscribe", 1, "1", None, "replace"),
        ("publish", [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a")], WARM),
        ("subscribe", 0, "2", "/w LIKE '^a'", "replace"),
        ("publish", [(4, "b"), (5, "b"), (1, "a"), ("5", "b"), (4, "a")], WARM),
    ]
)
def test_together_or_one_by_one_is_the_same(steps: list[Step]) -> None:
    assert received(steps, together=True) == received(steps, together=False)
