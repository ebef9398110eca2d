"""Three instances that replicate to one another, publishers that move between them, and a model.

Whatever comes on which way and in which order: in the end each instance has every message once,
and each record is of its publisher's last message.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import JournalEntry
from server.storage.sow.log_apply import apply_entry
from tests.engine.replicas import Replica, Road
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import make_topic, topic_spec
from tests.support.chances import examples

NAMES = ("one", "two", "three")
PLACES = st.integers(0, 2)

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            PLACES,
            st.integers(0, 1),  # who
            st.sampled_from(["orders", "orders", "log"]),
            st.sampled_from([True, True, False]),  # numbered
            st.sampled_from(["", "", "mark"]),
            st.integers(1, 12),  # how many
        ),
        st.tuples(st.just("delta"), PLACES, st.integers(0, 2)),
        st.tuples(st.just("carry"), st.integers(0, 5)),
    ),
    min_size=4,
    max_size=40,
)


class World:
    """Three instances, and who uses them."""

    def __init__(self, directory: Path) -> None:
        def prepare(core: Core) -> None:
            core.keep(topic_spec("/id"))

        self.replicas = [Replica(name, directory, prepare=prepare) for name in NAMES]
        self.roads = [Road(*pair) for pair in permutations(self.replicas, 2)]
        self.readers = [replica.client("reader") for replica in self.replicas]
        for reader in self.readers:
            for topic in ("orders", "log"):
                reader.send({"c": "subscribe", "cid": "1", "sub_id": topic, "t": topic, "bm": "0"})
            reader.send({"c": "subscribe", "cid": "2", "sub_id": "live", "t": "log"})
        self.publishers: dict[tuple[int, int], CorePeer] = {}
        self.numbers = defaultdict[int, int](int)
        self.published = 0

    def publish(
        self, place: int, who: int, topic: str, numbered: bool, mark: str, count: int
    ) -> None:
        """Somebody publishes at one of the instances, to records of its own."""
        for _ in range(count):
            self.published += 1
            body = {"id": f"{who}{numbered}{self.published % 3}", "n": self.published}
            if not numbered:
                body["id"] = f"{who}{place}{self.published % 3}"
            self._send(place, who, "publish", topic, numbered, mark, body)

    def delta(self, place: int, who: int) -> None:
        """Somebody changes a record, as the instance has it."""
        self.published += 1
        body = {"id": f"{who}delta{place}", f"f{self.published % 3}": self.published}
        self._send(place, who, "delta_publish", "orders", False, "", body)

    def _send(
        self, place: int, who: int, command: str, topic: str, numbered: bool, mark: str, body: Any
    ) -> None:
        if (place, who) not in self.publishers:
            self.publishers[place, who] = self.replicas[place].client(f"publisher {who}")
        header = {"c": command, "t": topic}
        if mark:
            header["x"] = mark
        if numbered:
            self.numbers[who] += 1
            header["s"] = str(self.numbers[who])
        self.publishers[place, who].send(header, json.dumps(body).encode())

    def carry(self, road: int) -> None:
        """What there is on one side gets to the other."""
        self.roads[road].carry()

    def settle(self) -> None:
        """Everything gets everywhere."""
        for _ in range(3):
            for road in self.roads:
                road.carry()

    def close(self) -> None:
        """End."""
        for replica in self.replicas:
            replica.close()


def content(entries: Sequence[JournalEntry]) -> dict[str, tuple[object, ...]]:
    """What is the same of messages everywhere, by bookmark."""
    return {
        one.bookmark: (one.topic, one.kind, one.body, one.sow_key, one.correlation_id)
        for one in entries
    }


def records(replica: Replica) -> dict[str, tuple[bytes, str]]:
    """The records of an instance."""
    keeper = replica.core.engine.sow_registry.find("json", "orders")
    assert keeper is not None
    store = keeper.table.store
    found = [store.read_record(row) for _, row in store.identities()]
    return {one.key: (one.body, one.bookmark) for one in found}


@given(STEPS)
@settings(max_examples=examples(60, 8), deadline=None)
def test_all_instances_have_everything_once(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        try:
            for name, *given_ in steps:
                getattr(world, name)(*given_)
            world.settle()
            check(world)
        finally:
            world.close()


def check(world: World) -> None:
    """All instances agree, and what they told agrees with what they have."""
    logs = [replica.entries() for replica in world.replicas]
    for log in logs:
        assert len(log) == len(content(log)) == world.published
        assert content(log) == content(logs[0])
    for replica, log, reader in zip(world.replicas, logs, world.readers, strict=True):
        assert records(replica) == records(world.replicas[0])
        assert not [one for one in replica.said() if one > "1D-0021"]
        again = make_topic(topic_spec("/id"))
        for entry in log:
            if entry.topic.name == "orders":
                apply_entry(again, entry)
        store = again.table.store
        found = [store.read_record(row) for _, row in store.identities()]
        assert {one.key: (one.body, one.bookmark) for one in found} == records(replica)
        came: dict[str, list[bytes]] = {"orders": [], "log": [], "live": []}
        for head, body in reader.take_frames():
            for sub_id in head["sids"].split(",") if head["c"] == "p" else ():
                came[sub_id].append(body)
        by_topic = {
            topic: [one.body for one in log if one.topic.name == topic]
            for topic in ("orders", "log")
        }
        assert came == by_topic | {"live": by_topic["log"]}
