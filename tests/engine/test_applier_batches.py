"""What comes from other instances together comes to what it comes to message by message."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.replication.core import ReplicationBatch, ReplicationFrameReader, encode
from server.storage.journal import JournalEntryKind
from server.storage.sow.log_apply import apply_entry
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.records import Record
from server.storage.sow.store import RecordStore
from tests.engine.incoming import essence, publish
from tests.engine.replicas import Replica, Road
from tests.engine.support import Core, CorePeer
from tests.engine.test_record_runs import SUBSCRIPTIONS, some_of
from tests.storage.sow.model import state_of
from tests.storage.sow.support import Disk, make_topic, topic_spec
from tests.storage.views.support import view
from tests.support.chances import examples

TOPICS: Final = ("orders", "trades", "log")
SLAB: Final = 4096
TOO_LARGE: Final = b"x" * 5000


class Message(NamedTuple):
    """What somebody publishes."""

    place: int = 0
    who: int = 0
    topic: str = "orders"
    numbered: bool = True
    record: int = 0
    value: int = 0
    mark: str = ""
    key: str = ""
    lifetime: int | None = None
    pad: bytes = b""

    @property
    def body(self) -> bytes:
        return b'{"id":%d,"n":%d,"pad":"%b"}' % (self.record, self.value, self.pad)


class Setting(NamedTuple):
    """How the topics of those who take in are configured.

    Attributes:
        keys: what the fields of their SOW keys are, none for keys that publishers give.
        history: whether past states are kept, so that no records are put in runs.
    """

    keys: tuple[str, ...] = ("/id",)
    in_file: bool = False
    expiring: bool = False
    pattern: bool = False
    history: bool = False
    viewed: bool = False


class Outcome(NamedTuple):
    """What has come of it."""

    told: list[bytes]
    records: list[dict[str, Record]]
    log: list[tuple[object, ...]]


class Singly(Road):
    """A road on which each message comes by itself."""

    def carry(self) -> Any:
        self._source.core.commit()
        now = int(self._source.core.clock.now() * 1e6)
        reader = ReplicationFrameReader(1 << 30)
        while (batch := self.sender.next_frame(now, flush=True)) is not None:
            reader.feed(encode(batch))
            frame = reader.next_frame()
            assert isinstance(frame, ReplicationBatch)
            after = frame.after
            if (columns := frame.columns) is not None:
                for place, txid in enumerate(columns.txids):
                    self.receiver.receive_batch(
                        ReplicationBatch(after, txid, columns.pick([place]))
                    )
                    after = txid
            if after < frame.upto:
                self.receiver.receive_batch(ReplicationBatch(after, frame.upto, None))
            self.settle()


class Taker:
    """An instance that takes in what two others have, and those who subscribe there."""

    def __init__(
        self, stack: ExitStack, directory: Path, setting: Setting, connections: list[list[str]]
    ) -> None:
        directory.mkdir()
        disk = Disk(directory)
        stack.callback(disk.close)
        self.stores: list[RecordStore] = []

        def prepare(core: Core) -> None:
            for name in TOPICS[:1] if setting.pattern else TOPICS[:2]:
                store: RecordStore = MemoryStore()
                if setting.in_file:
                    store, _ = disk.open(
                        name=f"{name}.sow", slab_size=SLAB, pattern=setting.pattern, topic=name
                    )
                    stack.callback(store.close)
                self.stores.append(store)
                spec = topic_spec(
                    *setting.keys,
                    name=name,
                    hash_indexes=(("/n",),),
                    expiration_enabled=setting.expiring,
                    pattern="orders|trades" if setting.pattern else None,
                    history=(10**12, 1) if setting.history else None,
                )
                core.keep(spec, store=store)
            if setting.viewed:
                core.derive(view("totals", "orders", "/n AS /n; COUNT(/id) AS /count", "/n"))

        self.replica = Replica("taker", directory, prepare=prepare)
        stack.callback(self.replica.close)
        self.readers: list[CorePeer] = []
        for number, names in enumerate(connections):
            reader = self.replica.client(f"reader {number}")
            for name in names:
                for topic in TOPICS[:2] if number else TOPICS[:1]:
                    sub_id = f"{name} {topic}"
                    header = {"t": topic, "sub_id": sub_id, "cid": sub_id} | SUBSCRIPTIONS[name]
                    reader.send(header)
            self.readers.append(reader)

    def outcome(self) -> Outcome:
        """All that can be seen of it, but for its txids.

        What is missing of a publisher is noted earlier or later, as it comes in larger or smaller
        batches.
        """
        self.replica.core.clock.advance(1.5)
        return Outcome(
            [reader.received for reader in self.readers],
            [
                {identity: one._replace(sequence=0) for identity, one in state_of(store).items()}
                for store in self.stores
            ],
            [
                (*essence(one), one.origin.path)
                for one in self.replica.entries()
                if one.kind != JournalEntryKind.MISSING
            ],
        )


def take_in(
    setting: Setting,
    connections: list[list[str]],
    messages: list[Message],
    order: list[int],
    road: type[Road],
) -> Outcome:
    """Have messages published at two instances, and taken in by a third one in some order."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sources = []
        for name in ("one", "two"):

            def prepare(core: Core) -> None:
                core.keep(topic_spec(name="trades"))

            source = Replica(name, directory, prepare=prepare)
            stack.callback(source.close)
            sources.append(source)
        taker = Taker(stack, directory / "taker", setting, connections)
        roads = [road(source, taker.replica) for source in sources]
        publishers = {}
        for place, source in enumerate(sources):
            for who, user in enumerate(("", "user")):
                peer = publishers[place, who] = source.core.connect()
                logon = {"c": "logon", "cid": "1", "client_name": f"publisher {who}", "mt": "json"}
                peer.send(logon | ({"user_id": user} if user else {}))
        numbers = [0, 0]
        for one in messages:
            header: dict[str, Any] = {}
            if one.numbered:
                numbers[one.who] += 1
                header["s"] = numbers[one.who]
            if one.mark:
                header["x"] = one.mark
            if one.key:
                header["k"] = one.key
            if one.lifetime is not None:
                header["e"] = one.lifetime
            publish(publishers[one.place, one.who], one.topic, one.body, **header)
        for place in order:
            roads[place].carry()
        return taker.outcome()


MESSAGES = st.builds(
    Message,
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from(["orders", "orders", "orders", "trades", "log"]),
    st.sampled_from([True, True, True, False]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["", "", "", "mark", "m\u00e4rk"]),
    st.sampled_from(["", "", "", "17", "text"]),
    st.sampled_from([None, None, 0, 100]),
    st.sampled_from([b"", b"", b"x" * 300]),
)
SETTINGS = st.builds(
    Setting, st.sampled_from([("/id",), ("/id",), ("/n", "/id"), ()]), *[st.booleans()] * 3
)


@settings(max_examples=examples(60, 8), deadline=None)
@given(
    setting=SETTINGS,
    viewed=st.booleans(),
    connections=st.lists(some_of(sorted(SUBSCRIPTIONS), 3), max_size=2),
    messages=st.lists(MESSAGES, min_size=4, max_size=40),
    order=st.sampled_from([[0, 1], [1, 0]]),
    large=st.integers(0, 80),
)
@example(Setting(), False, [], [Message(n % 2, record=n % 3) for n in range(20)], [1, 0], 80)
@example(Setting(), False, [], [Message(0, n % 2, mark="m") for n in range(20)], [0], 80)
@example(Setting(), False, [["marked"]], [Message(0, n % 2) for n in range(20)], [0], 80)
@example(Setting(in_file=True), False, [["plain"]], [Message(mark="m")] * 9, [0], 5)
def test_messages_together_come_to_what_they_come_to_alone(
    setting: Setting,
    viewed: bool,
    connections: list[list[str]],
    messages: list[Message],
    order: list[int],
    large: int,
) -> None:
    """To the byte what subscribers get; records, log; also where one of them cannot be stored."""
    setting = setting._replace(viewed=viewed)
    if large < len(messages):
        messages = [*messages]
        messages[large] = messages[large]._replace(pad=TOO_LARGE)
    together = take_in(setting, connections, messages, order, Road)
    assert take_in(setting, connections, messages, order, Singly) == together
    if not setting.in_file and not setting.pattern:
        kept = setting._replace(history=True)
        alone = take_in(kept, connections, messages, order, Road)
        assert (alone.told, alone.log) == (together.told, together.log)


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_whoever_listens_is_told_the_same(name: str) -> None:
    """Of messages by several publishers, with and without marks, some of them late."""
    messages = [
        Message(n // 3 % 2, n // 2 % 2, record=n % 3, value=n % 4, mark="m" * (n // 5 % 3))
        for n in range(30)
    ]
    for connections in ([[name]], [["plain"], [name, "one"]]):
        alone = take_in(Setting(), connections, messages, [1, 0], Singly)
        assert take_in(Setting(), connections, messages, [1, 0], Road) == alone
        assert b'"c":"p"' in alone.told[-1]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("connections", [[], [["plain"]]], ids=["unheard", "heard"])
def test_records_are_what_the_log_says(order: list[int], connections: list[list[str]]) -> None:
    """Also where late messages are among those that come together."""
    messages = [
        Message(n // 4 % 2, n % 2, record=n % 6, value=n, mark="m" * (n // 7 % 2), lifetime=n % 2)
        for n in range(60)
    ]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sources = [Replica(name, directory) for name in ("one", "two")]
        for source in sources:
            stack.callback(source.close)
        taker = Taker(stack, directory / "taker", Setting(expiring=True), connections)
        roads = [Road(source, taker.replica) for source in sources]
        numbers = [0, 0]
        for one in messages:
            numbers[one.who] += 1
            header: dict[str, Any] = {"s": numbers[one.who], "e": 100 * (one.lifetime or 0)}
            if one.mark:
                header["x"] = one.mark
            peer = sources[one.place].client(f"publisher {one.who}")
            publish(peer, "orders", one.body, **header)
            peer.leave()
        for place in order:
            roads[place].carry()
        again = make_topic(topic_spec("/id", name="orders", expiration_enabled=True))
        for entry in taker.replica.entries():
            apply_entry(again, entry)
        store = again.table.store
        assert state_of(taker.stores[0]) == state_of(store)
        assert {record.body for record in state_of(store).values()} == {
            Message(record=n % 6, value=n).body for n in range(54, 60)
        }
