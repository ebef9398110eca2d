"""Bookmark subscriptions beside small models of what each has to get.

Whatever happens in whichever order, each gets every message that it is for, once, in order, and
none before it may.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.replaying import publish, subscribe
from tests.engine.support import Core
from tests.support.chances import examples

SAID = st.fixed_dictionaries(
    {"t": st.sampled_from(["log-a", "log-b", "log-%s"])},
    optional={"x": st.sampled_from(["mark", "50%"]), "k": st.sampled_from(["7", "key"])},
)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.integers(0, 2), SAID, st.integers(1, 4), st.booleans()), max_size=12),
    st.sampled_from(["^log-", "log-a", "log-%s"]),
    st.sampled_from([None, "/n > 3", "/n % 2 = 0", "LENGTH(CORRELATION_ID()) > 2"]),
    st.sampled_from(["", "timestamp", "select=[-/,+/n]", "fully_durable"]),
)
def test_messages_read_in_runs_are_those_read_one_by_one(
    publishes: list[tuple[int, dict[str, str], int, bool]],
    topic: str,
    text: str | None,
    options: str,
) -> None:
    """A replay that counts its messages looks at each; one that does not takes whole runs."""
    core = Core()
    with tempfile.TemporaryDirectory() as directory:
        core.record(Path(directory), "^log-")
        publishers = [core.log_on(f"publisher-{number}") for number in range(3)]
        sequence = 0
        for number, said, times, is_numbered in publishes:
            for _ in range(times):
                sequence += 1
                numbered = {"s": sequence} if is_numbered else {}
                body = b'{"n":%d,"more":"%s"}' % (sequence, b"x" * (sequence % 3))
                publishers[number].send({"c": "publish", **said, **numbered}, body)
            core.clock.advance(0.5)
        core.commit()
        replays: list[list[tuple[dict[str, Any], bytes]]] = []
        for more in ({}, {"top_n": 1000}):
            reader = core.log_on(f"reader{len(replays)}")
            filtered = {"f": text} if text else {}
            command = {"c": "subscribe", "sub_id": "50%", "t": topic, "bm": "0", "o": options}
            reader.send(command | filtered | more)
            reader.send({"c": "subscribe", "sub_id": "all", "t": "log-a", "bm": "0"} | more)
            replays.append([one for one in reader.take_frames() if one[0]["c"] == "p"])
        core.transaction_log.close()
    by_id = [
        {sub_id: [one for one in frames if one[0]["sids"] == sub_id] for sub_id in ("50%", "all")}
        for frames in replays
    ]
    assert by_id[0] == by_id[1]
    assert sum(map(len, by_id[0].values())) == len(replays[0])
    if topic == "^log-" and text is None:
        assert len(by_id[0]["50%"]) == sum(times for _, _, times, _ in publishes)


class Reader:
    """A client with bookmark subscriptions, and what each of them has to get."""

    def __init__(self, core: Core, name: str) -> None:
        self.peer = core.log_on(name)
        self.expected: dict[str, tuple[str, int]] = {}  # topics, and the first message
        self.got: dict[str, list[int]] = {}
        self.paused: set[str] = set()
        self.live: set[str] = set()

    def take(self) -> None:
        """Note what has come."""
        for head, body in self.peer.take_frames():
            if head["c"] == "p":
                for sub_id in head["sids"].split(","):
                    self.got[sub_id].append(int(body))


class Replays(RuleBasedStateMachine):
    """Publishers, commits, and readers who come, fall behind, pause and go."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.core = Core()
        self.core.record(Path(self.directory.name), "^log-")
        self.publisher = self.core.log_on("publisher")
        self.published: list[str] = []  # topics, by number of message
        self.safe = 0
        self.readers = [Reader(self.core, f"reader-{number}") for number in range(3)]
        self.made = 0

    def teardown(self) -> None:
        """Catch up with everything: then all have everything."""
        for reader in self.readers:
            reader.peer.is_behind = False
            for sub_id in sorted(reader.paused):
                self._resume(reader, sub_id)
        for _ in range(20):
            self.core.commit()
            self.core.clock.advance(1)
            for reader in self.readers:
                reader.take()
        for reader in self.readers:
            for sub_id, (pattern, first) in reader.expected.items():
                assert reader.got[sub_id] == self._wanted(pattern, first), sub_id
        self.core.transaction_log.close()
        self.directory.cleanup()

    def _wanted(self, pattern: str, first: int) -> list[int]:
        return [
            number
            for number in range(first, len(self.published))
            if pattern in ("^log-", self.published[number])
        ]

    @rule(topic=st.sampled_from(("log-a", "log-b")), count=st.sampled_from((1, 3, 300)))
    def publish(self, topic: str, count: int) -> None:
        for _ in range(count):
            publish(self.publisher, topic, b"%d" % len(self.published))
            self.published.append(topic)

    @rule()
    def commit(self) -> None:
        self.core.commit()
        self.safe = len(self.published)

    @rule(seconds=st.sampled_from((0.0, 0.02, 2.0)))
    def pass_time(self, seconds: float) -> None:
        self.core.clock.advance(seconds)

    @rule(
        which=st.integers(0, 2),
        topic=st.sampled_from(("log-a", "^log-")),
        mode=st.sampled_from(("", "live", "fully_durable", "pause", "rate=1000000")),
        at_end=st.booleans(),
    )
    def subscribe(self, which: int, topic: str, mode: str, at_end: bool) -> None:
        reader = self.readers[which]
        self.made += 1
        sub_id = f"s{self.made}"
        reader.got[sub_id] = []
        reader.expected[sub_id] = topic, len(self.published) if at_end else 0
        if mode == "pause":
            reader.paused.add(sub_id)
        if mode == "live":
            reader.live.add(sub_id)
        subscribe(reader.peer, sub_id, topic, "0|1|" if at_end else "0", mode)

    @rule(which=st.integers(0, 2), count=st.integers(1, 3))
    def pause(self, which: int, count: int) -> None:
        reader = self.readers[which]
        ids = [one for one in reader.expected if one not in reader.paused | reader.live][:count]
        if ids:
            reader.paused.update(ids)
            header = {"c": "subscribe", "cid": "p", "sub_id": ",".join(ids), "o": "pause"}
            reader.peer.send(header)

    @rule(which=st.integers(0, 2))
    def resume_all(self, which: int) -> None:
        reader = self.readers[which]
        if reader.paused:
            self._resume(reader, ",".join(sorted(reader.paused)))

    def _resume(self, reader: Reader, sub_ids: str) -> None:
        reader.peer.send({"c": "subscribe", "cid": "p", "sub_id": sub_ids, "o": "resume"})
        reader.paused.difference_update(sub_ids.split(","))

    @rule(which=st.integers(0, 2))
    def fall_behind_or_catch_up(self, which: int) -> None:
        peer = self.readers[which].peer
        peer.is_behind = not peer.is_behind

    @precondition(lambda self: any(reader.expected for reader in self.readers))
    @rule(which=st.integers(0, 2))
    def unsubscribe(self, which: int) -> None:
        reader = self.readers[which]
        if reader.expected:
            sub_id = next(iter(reader.expected))
            reader.peer.send({"c": "unsubscribe", "sub_id": sub_id})
            reader.take()
            del reader.expected[sub_id]
            reader.paused.discard(sub_id)

    @invariant()
    def nothing_is_out_of_order_or_too_early(self) -> None:
        for reader in self.readers:
            reader.take()
            for sub_id, (pattern, first) in reader.expected.items():
                got = reader.got[sub_id]
                assert got == self._wanted(pattern, first)[: len(got)], sub_id
                if got and sub_id not in reader.live:
                    assert got[-1] < self.safe


TestReplays = Replays.TestCase

TestReplays.settings = settings(max_examples=examples(40, 8), stateful_step_count=30, deadline=None)
