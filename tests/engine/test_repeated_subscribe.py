"""Subscribes like the one before them, against a model: connections whose commands are never alike.

The model's commands have a correlation id each, of which acks and messages say nothing, and which
keeps them from being taken for the same with another filter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import parse
from server.security.entitlement import FixedEntitlement
from server.security.permissions import UNLIMITED, Permission, Permit
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.chances import examples

Step: TypeAlias = "dict[str, str] | tuple[Any, Any]"

FILTERS = [
    "/a = 1",
    "/a = 2",
    "/a = '2'",
    "/a = 2.0",
    "/a != '2' AND /a > 0",
    "NOT (/a = 1 OR /b BETWEEN 'w' AND 'x')",
    "/b = ''",
    "/b = 'x' AND /a > 0",
    "/b = 'y' AND /a > 1",
    "/b LIKE 'x'",
    "/a = ",
    "   ",
    "/a = 1 AND 'x",
    "/a IN (1, 3)",
    "/a > UNIX_TIMESTAMP()",
]
COMMON = [
    {"t": "t", "a": "processed"},
    {"t": "t"},
    {"t": "t", "a": "received,processed,completed,stats,persisted"},
    {"t": "t", "a": "processed", "o": "timestamp"},
    {"t": "t", "a": "processed", "o": "replace"},
    {"t": "t", "a": "processed", "o": "bogus"},
    {"t": "t", "a": "processed", "o": "select=[+/a]"},
    {"t": "t", "a": "processed", "o": "conflation=1s,conflation_key=[/a]"},
    {"t": "records", "a": "processed", "o": "oof"},
    {"t": "records", "a": "processed", "o": "no_empties,no_sowkey"},
    {"t": "rec.*", "a": "processed"},
    {"t": "t", "a": "processed,completed", "bm": "0"},
    {"t": "t", "a": "processed", "query_id": "q"},
    {"a": "processed"},
]
IDS: list[dict[str, str]] = [{"sub_id": str(number)} for number in range(20)]
IDS += [{}, {"sub_id": "7" * 1025}, {"sub_id": "8,9"}]


def subscribes(habits: list[dict[str, str]]) -> st.SearchStrategy[Step]:
    """Commands of a client that is used to some."""
    return st.builds(
        lambda habit, ids, text, key, cid: (
            habit
            | ids
            | ({} if text is None else {key: text})
            | ({} if cid is None else {"cid": cid})
        ),
        st.sampled_from(habits),
        st.sampled_from(IDS),
        st.none() | st.sampled_from(FILTERS),
        st.sampled_from(["filter", "f"]),
        st.none() | st.integers(10, 40).map(str),
    )


UNSUBSCRIBES = st.sampled_from(["1", "2", "3", "all"]).map(
    lambda sub_id: {"c": "unsubscribe", "sub_id": sub_id, "a": "processed"}
)
PUBLISHES = st.builds(
    lambda topic, a, b: ({"c": "publish", "t": topic}, b'{"a":%d,"b":"%s"}' % (a, b)),
    st.sampled_from(["t", "records", "record.s"]),
    st.integers(0, 3),
    st.sampled_from([b"x", b"y"]),
)
SOME = Permit(is_allowed=True, filter=parse("/a > 1"), filter_text="/a > 1")
PERMITS = st.tuples(
    st.sampled_from(["t", "records"]),
    st.sampled_from([UNLIMITED, Permit(is_allowed=False), SOME]),
)
HABITS = st.builds(
    lambda command, common: {"c": command} | common,
    st.sampled_from(["subscribe", "subscribe", "delta_subscribe"]),
    st.sampled_from(COMMON),
)
STEPS = st.lists(HABITS, min_size=1, max_size=2).flatmap(
    lambda habits: st.lists(
        st.one_of(*[subscribes(habits)] * 4, UNSUBSCRIBES, PUBLISHES, PERMITS),
        min_size=12,
        max_size=30,
    )
)


@dataclass
class Fickle:
    """Permissions that become others."""

    permits: dict[str, Permit] = field(default_factory=dict)

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        reads = permission is Permission.READ_TOPIC
        return self.permits.get(resource, UNLIMITED) if reads else UNLIMITED

    def allows_instance(self, name: str) -> bool | None:
        return None

    def release(self) -> None:
        """See `Permissions`."""


class Bench:
    """A subscriber, and somebody who publishes."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.keep(topic_spec("/a", name="records"))
        self.permissions = Fickle()
        self.core.entrance = replace(
            self.core.entrance, entitlement=FixedEntitlement(self.permissions)
        )
        self.subscriber = self.core.log_on("subscriber")
        self.publisher = self.core.log_on("publisher")

    def told(self) -> tuple[Any, ...]:
        """What has come of all steps so far, but for what differs from run to run."""
        log = [(entry[0], entry[1].get("sub_id")) for entry in self.core.log.entries]
        return frames_of(self.subscriber), frames_of(self.publisher), log, self.subscriber.held


def frames_of(peer: CorePeer) -> list[tuple[dict[str, Any], bytes]]:
    """What has come since the last time."""
    return [({**head, "ts": "ts" in head}, body) for head, body in peer.take_frames()]


def test_of_each_habit_the_same_comes() -> None:
    """One after the other, with a message for all of them at the end."""
    for habit in COMMON:
        steps: list[Step] = [
            {"c": "subscribe", "cid": f"c{number}"} | habit | {"filter": text}
            for number, text in enumerate(FILTERS)
        ]
        body = b'{"a":1,"b":"x"}'
        compare(
            [*steps, ({"c": "publish", "t": "t"}, body), ({"c": "publish", "t": "record"}, body)]
        )


@settings(max_examples=examples(100))
@given(STEPS)
def test_the_same_comes_of_them_as_of_any(steps: list[Step]) -> None:
    """Frames, entries in the log, and the memory that counts are the same."""
    compare(steps)


def compare(steps: list[Step]) -> None:
    """Take the same steps with both."""
    same, model = Bench(), Bench()
    for number, step in enumerate(steps):
        for bench in (same, model):
            if isinstance(step, dict):
                mark = {"x": str(number)} if bench is model else {}
                bench.subscriber.send(step | mark)
            elif isinstance(step[0], dict):
                bench.publisher.send(*step)
            else:
                bench.permissions.permits[step[0]] = step[1]
            bench.core.clock.advance(0.5)
        assert same.told() == model.told()
