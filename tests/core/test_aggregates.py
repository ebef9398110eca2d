"""Whatever happens to records, a client that mirrors its groups from what it is sent has them.

The model is a few lines: the records that match, grouped and computed anew.
"""

from __future__ import annotations

import json
from itertools import groupby
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import Core, CorePeer
from tests.sow.support import topic_spec
from tests.support.sow import split_records

OTHERS = [f"other/{number}" for number in range(6)]
FILTERS = ("1=1", "/n < 3", "/n >= 2 OR /g = 'a'", "/id IN (1, 3, 5)")
PROJECTION = (
    "/g,COUNT(/id) AS /count,SUM(/n) AS /sum,MAX(/n) AS /max,COUNT_DISTINCT(/n) AS /distinct,"
    "GROUP_CONCAT(/n, ']') AS /all,/id AS /last"
)
NUMBERS = st.integers(0, 5)
NAMES = st.sampled_from("abc")


def groups_of(records: list[Any], last: dict[int, int]) -> dict[str, Any]:
    """The model.

    Args:
        records: those that match.
        last: when each id was published last.
    """
    result = {}
    for name, group in groupby(sorted(records, key=lambda one: one["g"]), lambda one: one["g"]):
        members = list(group)
        numbers = [one["n"] for one in members if one["n"] is not None]
        result[name] = {
            "g": name,
            "count": len(members),
            "sum": float(sum(numbers)) if numbers else None,
            "max": max(numbers, default=None),
            "distinct": len(set(numbers)),
            "all": "]".join(sorted(set(map(str, numbers)))) or None,
            "last": max(members, key=lambda one: last[one["id"]])["id"],
        }
    return result


class Reader:
    """A client that keeps a copy of its groups.

    Args:
        core: the engine.
        command: how it follows.
        options: further options.
    """

    def __init__(self, core: Core, command: str, options: str) -> None:
        self._peer = core.log_on("reader")
        self._command = command
        self._options = f"oof,projection=[{PROJECTION}],grouping=[/g]{options}"
        self._acks_awaited = 0
        self.filter: str | None = None
        self.copy: dict[str, Any] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a query is under way."""
        return self._acks_awaited > 0

    def follow(self, filter_: str) -> None:
        """Begin to follow groups, and stop to follow others."""
        if self.is_waiting:
            return
        self._peer.send({"c": "unsubscribe", "cid": "u", "sub_id": "r"})
        self._peer.take_frames()
        self.copy.clear()
        header = {"c": self._command, "cid": "r", "sub_id": "r", "t": "t", "f": filter_, "bs": 3}
        self._peer.send(header | {"a": "completed", "o": self._options})
        self.filter = filter_
        self._acks_awaited += 1

    def be_busy(self) -> None:
        """Ask for something that takes so many slices that what follows has to wait."""
        self._peer.send({"c": "sow", "cid": "busy", "t": "^other/", "a": "completed"})
        self._acks_awaited += 1

    def take_in(self) -> None:
        """Apply what has been received."""
        for header, content in self._peer.take_frames():
            if header["c"] == "ack":
                assert header["status"] == "success", header
                self._acks_awaited -= 1
            elif header["c"] == "sow":
                for record, body in split_records(header, content):
                    if record["t"] == "t":
                        self.copy[record["k"]] = json.loads(body)
            elif header["c"] == "oof":
                assert json.loads(content) == self.copy.pop(header["k"])
            elif header["c"] == "p":
                message = json.loads(content)
                if "delta" in self._command:
                    message = self.copy.get(header["k"], {}) | message
                self.copy[header["k"]] = message


def matching(core: Core, options: dict[str, str]) -> list[Any]:
    """What a query gives; no time passes for others."""
    peer: CorePeer = core.log_on("auditor")
    peer.send({"c": "sow", "cid": "q", "t": "t", "bs": 1000} | options)
    messages: list[Any] = []
    ended = False
    while not ended:
        for header, content in peer.take_frames():
            ended |= header["c"] == "group_end"
            if header["c"] == "sow":
                messages += [json.loads(body) for _, body in split_records(header, content)]
        if not ended:
            core.clock.turn()
    peer.leave()
    return messages


class World:
    """An engine, a publisher, and readers of groups.

    Args:
        options: the options of the readers.
    """

    def __init__(self, options: str = "") -> None:
        self.core = Core()
        self.core.keep(
            topic_spec("/id", name="t", expiration_enabled=True),
            *(topic_spec("/id", name=name) for name in OTHERS),
        )
        self.publisher = self.core.log_on("publisher")
        self.readers = [
            Reader(self.core, command, options)
            for command in ("sow_and_subscribe", "sow_and_delta_subscribe")
        ]
        self._published = 0
        self._last: dict[int, int] = {}
        for number in range(6):
            self.publish(number, number % 4, "abc"[number % 3])
        for name in OTHERS:
            self.publisher.send({"c": "p", "t": name}, b'{"id":1}')

    def publish(self, id_: int, n: int | None, g: str, **keys: Any) -> None:
        """A message takes the place of the record with its key, for a while if `e` says so."""
        body = json.dumps({"id": id_, "n": n, "g": g}).encode()
        self.publisher.send({"c": "p", "t": "t"} | keys, body)
        self._published += 1
        self._last[id_] = self._published

    def delete(self, filter_: str) -> None:
        """Records go."""
        self.publisher.send({"c": "sow_delete", "t": "t", "f": f"({filter_}) AND /id < 4"})

    def follow(self, reader: int, busy: bool, filter_: str) -> None:
        """A client begins to follow groups."""
        if busy:
            self.readers[reader].be_busy()
            self.readers[reader].take_in()
        self.readers[reader].follow(filter_)

    def turn(self) -> None:
        """The engine goes on with queries."""
        self.core.clock.turn()

    def wait(self, seconds: float) -> None:
        """Time passes; all queries end, and records expire."""
        self.core.clock.advance(seconds)

    def check(self) -> None:
        """Compare the copies of all readers whose query has ended."""
        for reader in self.readers:
            reader.take_in()
            if reader.filter is None or reader.is_waiting:
                continue
            records = matching(self.core, {"f": reader.filter})
            reader.take_in()  # records may have expired
            expected = groups_of(records, self._last)
            copy = {message["g"]: dict(message) for message in reader.copy.values()}
            for name, group in copy.items():
                members = [one["id"] for one in records if one["g"] == name]
                if group["last"] not in members:  # it stays when the record has left
                    group["last"] = expected[name]["last"]
            assert copy == expected

    def check_query(self) -> None:
        """Compare what a query of all groups gives."""
        options = f"projection=[{PROJECTION}],grouping=[/g]"
        found = matching(self.core, {"o": options, "orderby": "/g"})
        assert found == [*groups_of(matching(self.core, {}), self._last).values()]


def call(name: str, *arguments: st.SearchStrategy[Any], **keys: Any) -> st.SearchStrategy[Any]:
    """A step: a method of the world, and what it is called with."""
    return st.tuples(st.just(name), st.tuples(*arguments), st.just(keys))


STEP = st.one_of(
    call("publish", NUMBERS, st.none() | NUMBERS, NAMES),
    call("publish", NUMBERS, NUMBERS, NAMES, e=1),
    call("delete", st.sampled_from(FILTERS)),
    call("follow", st.integers(0, 1), st.booleans(), st.sampled_from(FILTERS)),
    call("turn"),
    call("wait", st.just(0.6)),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(STEP, min_size=10, max_size=40))
def test_a_mirror_has_the_groups(steps: list[Any]) -> None:
    """After every step, for readers whose query has ended."""
    world = World()
    for name, arguments, keys in steps:
        getattr(world, name)(*arguments, **keys)
        world.check()
    world.wait(0.1)
    world.check()
    world.check_query()


@settings(max_examples=10, deadline=None)
@given(st.lists(STEP, min_size=10, max_size=40))
def test_a_conflated_mirror_has_the_groups_in_the_end(steps: list[Any]) -> None:
    """Once everything that waited has been sent."""
    world = World(",conflation=500ms")
    for name, arguments, keys in steps:
        getattr(world, name)(*arguments, **keys)
        for reader in world.readers:
            reader.take_in()
    world.wait(2)
    world.check()


def test_a_large_topic_changes_while_it_is_aggregated() -> None:
    """Its records are found in many slices, and changed between them."""
    random = Random(5)
    world = World()
    for number in range(10_000):
        world.publish(number, number % 977, f"g{number % 2500}")
    for reader in world.readers:
        reader.follow(random.choice(FILTERS))
    assert all(reader.is_waiting for reader in world.readers)
    while any(reader.is_waiting for reader in world.readers):
        for _ in range(random.randrange(200)):
            group = f"g{random.randrange(2600)}"
            world.publish(random.randrange(10_100), random.randrange(977), group)
        world.delete(f"/id = {random.randrange(4)}")
        world.turn()
        for reader in world.readers:
            reader.take_in()
    world.wait(0)
    world.check()
