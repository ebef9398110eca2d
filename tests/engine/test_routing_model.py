"""Routing against a model of ten lines: who gets a message, and with which ids."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import BUILTINS
from server.topics import topic_table
from tests.engine.support import Core
from tests.support.chances import examples

TOPICS = ["a", "b", "ab", "a.b", "abc"]
SELECTORS = [*TOPICS, "^a", "b$", "a.*c", "^(a|b)$"]
IDS = ["1", "2", 'quo"te\\\\', "caf\u00e9\u2028s"]
Constant = int | str | None
ANY: tuple[Constant, ...] = (None, 1, 2, "x")
FILTERS: dict[str | None, tuple[Constant, ...]] = {  # and which values of `a` they match
    None: ANY,
    "/a = 1": (1,),
    "/a = 'x'": ("x",),
    "/a IN (1, 2) AND /a = 2": (2,),
    "/a = 1 AND /a IN (1, 'x')": (1,),
    "/a > 1 AND /a < 5": (2,),
    "/a = ''": (),
}
BODIES = {value: json.dumps({"a": value}).encode() for value in ANY}

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"),
            st.integers(0, 2),
            st.sampled_from(IDS),
            st.sampled_from(SELECTORS),
            st.sampled_from(list(FILTERS)),
        ),
        st.tuples(st.just("unsubscribe"), st.integers(0, 2), st.sampled_from([*IDS, "all"])),
        st.tuples(
            st.just("publish"),
            st.integers(0, 2),
            st.sampled_from(TOPICS),
            st.sampled_from(ANY),
        ),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    ),
    max_size=40,
)


class Model:
    """What subscriptions mean: per peer, topics and filters by id, in the order they were made."""

    def __init__(self) -> None:
        self.subscriptions: list[dict[str, tuple[str, str | None]]] = [{}, {}, {}]

    def deliveries(self, topic: str, value: Constant) -> list[list[str]]:
        """Per peer, the ids that a message of the topic with this value of `a` is for."""
        return [
            [
                sub_id
                for sub_id, (selector, filter_) in own.items()
                if self._matches(selector, topic) and value in FILTERS[filter_]
            ]
            for own in self.subscriptions
        ]

    @staticmethod
    def _matches(selector: str, topic: str) -> bool:
        if set(selector) & set(".*+?[](){}^$|\\"):
            return re.search(selector, topic) is not None
        return selector == topic


@pytest.mark.parametrize("most_kept", [2, 1_000_000])
@settings(max_examples=examples(100))
@given(STEPS)
def test_messages_go_where_the_model_says(most_kept: int, steps: list[tuple[Any, ...]]) -> None:
    """Subscriptions come, are replaced and go, peers leave, topics are forgotten in between."""
    core = Core()
    core.engine.topics = topic_table.TopicTable(
        core.types, BUILTINS, core.engine.sow_registry, core.engine.scheduler.queue_task, most_kept
    )
    model = Model()
    peers = [core.log_on(f"peer {number}") for number in range(3)]
    for action, number, *arguments in steps:
        peer = peers[number]
        core.clock.turn()
        if action == "subscribe":
            sub_id, selector, filter_ = arguments
            command = {"c": "subscribe", "sub_id": sub_id, "t": selector, "o": "replace"}
            peer.send(command if filter_ is None else {**command, "filter": filter_})
            model.subscriptions[number].pop(sub_id, None)
            model.subscriptions[number][sub_id] = selector, filter_
        elif action == "unsubscribe":
            peer.send({"c": "unsubscribe", "sub_id": arguments[0]})
            if arguments[0] == "all":
                model.subscriptions[number].clear()
            model.subscriptions[number].pop(arguments[0], None)
        elif action == "leave":
            peer.leave()
            peers[number] = core.log_on(f"peer {number}")
            model.subscriptions[number].clear()
        else:
            topic, value = arguments
            peer.send({"c": "p", "t": topic}, BODIES[value])
            for receiver, expected in zip(peers, model.deliveries(topic, value), strict=True):
                frames = receiver.take_frames()
                assert len(frames) == bool(expected)
                for header, body in frames:
                    assert (header["t"], body) == (topic, BODIES[value])
                    assert sorted(header["sids"].split(",")) == sorted(expected)
