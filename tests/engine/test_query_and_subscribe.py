"""Whatever happens while a query is under way, its client ends with the right records.

Clients keep a copy of what they asked for, from nothing but what they are sent: records of the
query, publishes or deltas, and oof messages. Whenever everything has been sent, the copy has to be
what a query by somebody else gives.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.chances import examples
from tests.support.sow import split_records

TOPICS = ("t/a", "t/b", "t/pattern/1", "t/pattern/2")
FILTERS = ("/n < 3", "/n >= 2", "/m = 1 AND /n != 2", "1=1", "/id > 2 OR /n IS NULL")
NUMBERS = st.integers(0, 4)


class Follower:
    """A client that keeps a copy of the records that it follows.

    Args:
        core: the engine.
        delta: asks for deltas.
        options: further options.
    """

    def __init__(self, core: Core, *, delta: bool, options: str) -> None:
        self._core = core
        self._peer = core.log_on("follower")
        self._delta = delta
        self._options = options
        self._filter = ""
        self._acks_awaited = 0
        self._in_group = False
        self._copy: dict[tuple[str, str], Any] = {}

    def follow(self, filter_: str) -> None:
        """Begin to follow, or follow something else from now on."""
        command = "sow_and_delta_subscribe" if self._delta else "sow_and_subscribe"
        options = f"oof,replace,{self._options}" if self._filter else f"oof,{self._options}"
        header = {
            "c": command,
            "cid": "f",
            "sub_id": "f",
            "t": "^t/",
            "f": filter_,
            "a": "completed",
        }
        self._peer.send(header | {"o": options, "bs": 3})
        self._filter = filter_
        self._acks_awaited += 1

    def check(self) -> None:
        """Take in what was sent; once it is all there, the copy has to be right."""
        self._take_in()
        if self._acks_awaited:
            return
        peer = self._core.log_on("auditor")
        expected: dict[tuple[str, str], Any] = {}
        header = {"c": "sow", "cid": "q", "t": "^t/", "f": self._filter, "bs": 100}
        frames = _ask_all(self._core, peer, header)
        for frame, content in frames:
            if frame["c"] == "sow":
                for record, body in split_records(frame, content):
                    expected[record["t"], record["k"]] = json.loads(body)
        peer.leave()
        self._take_in()
        assert self._copy == expected

    def _take_in(self) -> None:
        for header, content in self._peer.take_frames():
            if header["c"] == "group_begin":
                assert not self._in_group
                self._in_group = True
            elif header["c"] == "group_end":
                self._in_group = False
            elif header["c"] == "ack":
                self._acks_awaited -= 1
            elif header["c"] == "sow":
                for record, body in split_records(header, content):
                    self._copy[record["t"], record["k"]] = json.loads(body)
            else:
                assert not self._in_group, "a message overtook the results of a query"
                self._apply(header, content)

    def _apply(self, header: dict[str, Any], content: bytes) -> None:
        key = header["t"], header["k"]
        assert header["c"] in ("p", "oof")
        if header["c"] == "oof":
            left = self._copy.pop(key)
            if "conflation" in self._options:
                assert json.loads(content) == left, "not the state that its client has"
        elif self._delta and key in self._copy:
            self._copy[key] = self._copy[key] | json.loads(content)
        else:
            self._copy[key] = json.loads(content)


def _ask_all(
    core: Core, peer: CorePeer, header: dict[str, Any]
) -> list[tuple[dict[str, Any], bytes]]:
    """Send a query, and give all frames up to the end of its results; no time passes for others."""
    peer.take_frames()
    peer.send(header)
    frames = peer.take_frames()
    while not any(frame["c"] == "group_end" for frame, _ in frames):
        core.clock.turn()
        frames += peer.take_frames()
    return frames


class QueryAndSubscribe(RuleBasedStateMachine):
    """Publishers, a deleter, time, and followers of all kinds."""

    options = ""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.core.keep(
            topic_spec("/id", name="t/a", expiration_enabled=True),
            topic_spec("/id", name="t/b", expiration_enabled=True),
            topic_spec("/id", name="c", pattern="^t/pattern/", expiration_enabled=True),
        )
        self.publisher = self.core.log_on("publisher")
        self.followers: list[Follower] = []

    @rule(topic=st.sampled_from(TOPICS), id_=NUMBERS, n=NUMBERS, m=NUMBERS)
    def publish(self, topic: str, id_: int, n: int, m: int) -> None:
        """A message takes the place of the record with its key."""
        body = {"id": id_, "n": n, "m": m}
        self.publisher.send({"c": "p", "t": topic}, json.dumps(body).encode())

    @rule(topic=st.sampled_from(TOPICS), id_=NUMBERS, n=NUMBERS)
    def publish_for_a_while(self, topic: str, id_: int, n: int) -> None:
        """A message expires."""
        body = {"id": id_, "n": n, "m": 0}
        self.publisher.send({"c": "p", "t": topic, "e": 1}, json.dumps(body).encode())

    @rule(topic=st.sampled_from(TOPICS), id_=NUMBERS, m=NUMBERS)
    def publish_delta(self, topic: str, id_: int, m: int) -> None:
        """A field of a record changes."""
        body = {"id": id_, "n": 0, "m": m} if m == 4 else {"id": id_, "m": m}
        self.publisher.send({"c": "delta_publish", "t": topic}, json.dumps(body).encode())

    @rule(filter_=st.sampled_from(FILTERS))
    def delete(self, filter_: str) -> None:
        """Records go."""
        self.publisher.send({"c": "sow_delete", "t": "^t/", "f": f"({filter_}) AND /id < 3"})

    @rule()
    def turn(self) -> None:
        """The engine goes on with queries."""
        self.core.clock.turn()

    @rule()
    def wait(self) -> None:
        """Time passes; all queries end, and records expire."""
        self.core.clock.advance(0.6)

    @precondition(lambda self: len(self.followers) < 3)
    @rule(filter_=st.sampled_from(FILTERS), delta=st.booleans())
    def begin(self, filter_: str, delta: bool) -> None:
        """Another client follows records."""
        self.followers.append(Follower(self.core, delta=delta, options=self.options))
        self.followers[-1].follow(filter_)

    @precondition(lambda self: self.followers)
    @rule(filter_=st.sampled_from(FILTERS), number=NUMBERS)
    def replace(self, filter_: str, number: int) -> None:
        """A client follows other records from now on."""
        self.followers[number % len(self.followers)].follow(filter_)

    @invariant()
    def copies_are_right(self) -> None:
        """Of those followers whose query has ended."""
        for follower in self.followers:
            follower.check()


TestQueryAndSubscribe = QueryAndSubscribe.TestCase
TestQueryAndSubscribe.settings = settings(max_examples=examples(60, 8), stateful_step_count=40)


class ConflatedQueryAndSubscribe(QueryAndSubscribe):
    """The same with followers that let messages wait; copies are compared when none does."""

    options = "conflation=500ms"

    @invariant()
    def copies_are_right(self) -> None:
        """Of all followers, once everything has had the time to arrive."""

    @rule()
    def wait(self) -> None:
        """Time passes; all queries end, records expire, and what waited arrives."""
        self.core.clock.advance(2)
        for follower in self.followers:
            follower.check()


TestConflatedQueryAndSubscribe = ConflatedQueryAndSubscribe.TestCase
TestConflatedQueryAndSubscribe.settings = settings(
    max_examples=examples(60, 8), stateful_step_count=40
)


def test_what_is_called_back_by_a_query_is_not_called_back_again() -> None:
    """It comes back and goes again before the query has said that it is out of focus."""
    world = ConflatedQueryAndSubscribe()
    world.begin(filter_="/n < 3", delta=False)
    world.publish(topic="t/a", id_=0, n=0, m=0)
    for filter_ in ("/n < 3", "/m = 1 AND /n != 2"):
        world.replace(filter_=filter_, number=0)
    world.publish_delta(topic="t/a", id_=0, m=1)
    world.publish(topic="t/a", id_=0, n=0, m=0)
    world.replace(filter_="/n < 3", number=0)
    world.wait()


def test_what_a_query_sends_late_is_not_what_its_client_has_in_the_end() -> None:
    """What was released meanwhile comes behind it, and is what an oof message says."""
    world = ConflatedQueryAndSubscribe()
    world.begin(filter_="/n < 3", delta=False)
    world.publish(topic="t/a", id_=1, n=0, m=0)
    for filter_ in ("/n >= 2", "/n < 3"):
        world.replace(filter_=filter_, number=0)
    world.publish_for_a_while(topic="t/a", id_=1, n=1)
    world.replace(filter_="/n < 3", number=0)
    world.wait()


REPLACEMENTS = {
    "a page": ("sow_and_subscribe", "top_n=2,skip_n=0,oof,conflation=500ms"),
    "the first results": ("sow_and_subscribe", "top_n=1,oof,conflation=500ms"),
    "a plain subscription": ("subscribe", "oof,conflation=500ms"),
}


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_what_the_replaced_subscription_has_sent_is_told_of_when_it_leaves(
    replacement: str,
) -> None:
    """Whatever takes its place, what it let wait included."""
    core = Core()
    core.keep(topic_spec("/id", name="t/a"))
    publisher, follower = core.log_on("publisher"), core.log_on("follower")
    header = {"cid": "f", "sub_id": "f", "t": "t/a", "f": "/n < 3"}
    publisher.send({"c": "p", "t": "t/a"}, b'{"id":1,"n":1}')
    follower.send(header | {"c": "sow_and_subscribe", "o": "oof,conflation=500ms"})
    core.clock.advance(2)
    publisher.send({"c": "p", "t": "t/a"}, b'{"id":2,"n":1}')
    command, options = REPLACEMENTS[replacement]
    follower.send(header | {"c": command, "o": f"replace,{options}"})
    core.clock.advance(2)
    assert b'{"id":2,"n":1}' in [body for head, body in follower.take_frames() if head["c"] == "p"]
    publisher.send({"c": "sow_delete", "t": "t/a", "f": "1=1"})
    core.clock.advance(2)
    left = [(head["c"], head["reason"], body) for head, body in follower.take_frames()]
    assert sorted(left) == [("oof", "deleted", b'{"id":%d,"n":1}' % id_) for id_ in (1, 2)]


def test_what_leaves_before_the_query_has_sent_it() -> None:
    """Its client is told after the results, although it did not have the record yet."""
    world = ConflatedQueryAndSubscribe()
    world.begin(filter_="/n < 3", delta=False)
    world.publish_delta(topic="t/a", id_=0, m=4)
    for filter_ in ("/n >= 2", "/n < 3"):
        world.replace(filter_=filter_, number=0)
    world.delete(filter_="/n < 3")
    world.replace(filter_="/n < 3", number=0)
    world.wait()
