"""Messages that come together become the records that they become alone, and are told of alike."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config_schema.problems import Location
from config_schema.spec import ConflatedTopicSpec, TopicRef
from server.message_types.registry import create
from server.storage.sow.keys.key_source import FieldKeys
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.records import Record
from server.storage.sow.store import RecordStore
from tests.engine.support import Core
from tests.storage.sow.model import state_of
from tests.storage.sow.support import Disk, topic_spec
from tests.support.chances import examples
from tests.support.raw import frame

KEYS = FieldKeys("orders", create("json", "json", {}), [("id",)])
ODD = [b"", b"{", b"[1]", b'{"id":null}', b'{"id":1,"id":2}', b'{"id":"\xff"}', b'{"n":1e999}']
BODIES = st.one_of(
    st.sampled_from(ODD),
    st.builds(
        lambda key, n, pad: b'{"id":%d,"n":%d,"pad":"%b"}' % (key, n, b"x" * pad),
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 12),
    ),
)
TOO_LARGE = b'{"id":1,"pad":"%b"}' % (b"x" * 9000)

SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"c": "subscribe"},
    "bare": {"c": "subscribe", "o": "no_sowkey"},
    "stamped": {"c": "subscribe", "o": "timestamp"},
    "marked": {"c": "subscribe", "o": "bookmark,timestamp"},
    "selected": {"c": "subscribe", "o": "select=[-/,+/n]"},
    "one": {"c": "subscribe", "f": "/n = 1"},
    "many": {"c": "subscribe", "f": "/n > 0", "o": "bookmark"},
    "asking": {"c": "subscribe", "f": "MESSAGE_SIZE() > 13"},
    "focus": {"c": "subscribe", "o": "oof"},
    "filtered focus": {"c": "subscribe", "f": "/n = 2", "o": "oof"},
    "delta": {"c": "delta_subscribe"},
    "conflated": {"c": "subscribe", "o": "conflation=100ms"},
    "page": {"c": "sow_and_subscribe", "o": "top_n=2,skip_n=1", "orderby": "/n DESC"},
    "groups": {
        "c": "sow_and_subscribe",
        "o": "projection=[/n,COUNT(/id) AS /count],grouping=[/n]",
    },
    "pattern": {"c": "subscribe", "t": "^ord"},
}
INDIFFERENT = ["plain", "bare", "stamped", "marked", "selected", "one", "many", "focus", "pattern"]
"""Those that are told the same whatever a record was before."""


class Setting(NamedTuple):
    """How a topic is configured."""

    journaled: bool = False
    in_file: bool = False
    derived: bool = False
    expiring: bool = False
    hashed: bool = False
    pattern: bool = False
    history: bool = False
    numbered: bool = False
    said: str = ""
    """Header keys with what each message has of its own: x, e."""


class Outcome(NamedTuple):
    """What came of some publishes."""

    told: list[bytes]
    answers: list[tuple[dict[str, Any], bytes]]
    records: dict[str, Record]
    log: list[Any]
    found: bytes


def in_order(acks: list[tuple[dict[str, Any], bytes]]) -> list[tuple[dict[str, Any], bytes]]:
    """Acks by their numbers: what is refused of a run is said first. One stands for others."""
    safe = [ack for ack in acks if (ack[0]["a"], ack[0].get("status")) == ("persisted", "success")]
    others = [ack for ack in acks if ack not in safe[:-1]]
    return sorted(others, key=lambda ack: (ack[0]["a"], ack[0].get("s", 0)))


def said_of(number: int, keys: str) -> dict[str, Any]:
    """What a publisher says of a message."""
    values: dict[str, Any] = {"x": f"mark {number % 3}", "e": number % 3 * 100}
    return {key: values[key] for key in keys}


def publish(
    setting: Setting, connections: list[list[str]], bodies: list[bytes], together: int
) -> Outcome:
    """Publish messages, so many in a piece, to a topic with subscribers.

    With none in a piece, they come one by one to a topic that takes them so: somebody else makes
    its keys, which happen to be the same.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        core = Core()
        store: RecordStore = MemoryStore()
        if setting.in_file:
            disk = Disk(directory)
            stack.callback(disk.close)
            store, _ = disk.open(slab_size=4096, pattern=setting.pattern, topic="orders")
            stack.callback(store.close)
        if setting.journaled:
            core.record(directory / "journal", ".*")
            stack.callback(core.transaction_log.journal.close)
        spec = topic_spec(
            "/id",
            hash_indexes=(("/n",),) if setting.hashed else (),
            expiration_enabled=setting.expiring,
            expiration=1_500_000_000 if setting.expiring else None,
            pattern="orders" if setting.pattern else None,
            history=(10**12, 1) if setting.history else None,
        )
        core.keep(spec, store=store, keys=None if together else KEYS)
        if setting.derived:
            core.derive(
                ConflatedTopicSpec(
                    name="copy",
                    message_type="json",
                    underlying=TopicRef("orders", "json"),
                    interval=100_000_000,
                    filter=None,
                    hash_indexes=(),
                    enrichment=(),
                    topic_format=None,
                    name_has_regex_characters=False,
                    location=Location("config.xml", 1),
                )
            )
        peers = []
        for number, names in enumerate(connections):
            peer = core.log_on(f"subscriber-{number}")
            for name in names:
                peer.send({"t": "orders", "sub_id": name, "cid": name} | SUBSCRIPTIONS[name])
            peers.append(peer)
        publisher = core.log_on("publisher")
        header: dict[str, Any] = {"c": "publish", "t": "orders"}
        if setting.numbered:
            header["a"] = "processed,persisted"
        frames = [
            frame(
                header
                | ({"s": number} if setting.numbered else {})
                | said_of(number, setting.said),
                body,
            )
            for number, body in enumerate(bodies, 1)
        ]
        for start in range(0, len(frames), together or 1):
            publisher.send_bytes(b"".join(frames[start : start + (together or 1)]))
        log = []
        if setting.journaled:
            core.commit()
            core.clock.advance(1.5)
            log = [
                (
                    *(one.txid, one.client, one.sequence, one.sow_key),
                    *(one.expiration, one.correlation_id, one.body),
                )
                for one in core.transaction_log.journal.entries(after=0)
            ]
        reader = core.log_on("reader")
        reader.send({"c": "sow", "cid": "q", "t": "orders", "f": "/n = '1' OR /n > 1"})
        return Outcome(
            [peer.received for peer in peers],
            in_order(publisher.take_frames()),
            state_of(store),
            log,
            reader.received,
        )


def some_of(names: list[str], most: int) -> st.SearchStrategy[list[str]]:
    """Some of these, each at most once."""
    return st.lists(st.sampled_from(names), max_size=most, unique=True)


SETTINGS = st.builds(
    Setting,
    *[st.booleans()] * 4,
    st.booleans(),
    numbered=st.booleans(),
    said=st.sampled_from(["", "x", "e", "xe"]),
)


@settings(max_examples=examples(40, 8), deadline=None)
@given(
    setting=SETTINGS,
    connections=st.lists(some_of(INDIFFERENT, 3), max_size=3),
    others=some_of(sorted(SUBSCRIPTIONS), 2),
    bodies=st.lists(BODIES, min_size=8, max_size=24),
    large=st.integers(0, 60),
)
@example(Setting(in_file=True), [["plain", "one"], ["many"]], [], ODD * 2, 3)
@example(Setting(True, in_file=True, numbered=True), [["marked"], []], ["delta"], ODD * 2, 5)
@example(Setting(True, in_file=True, numbered=True, said="xe"), [["marked"]], [], ODD * 2, 5)
def test_messages_together_come_to_what_they_come_to_alone(
    setting: Setting,
    connections: list[list[str]],
    others: list[str],
    bodies: list[bytes],
    large: int,
) -> None:
    """To the byte: what subscribers and publisher get, the records, the log, what a query finds."""
    if large < len(bodies):
        bodies = [*bodies[:large], TOO_LARGE, *bodies[large:]]
    everybody = [*connections, others]
    alone = publish(setting, everybody, bodies, together=0)
    assert publish(setting, everybody, bodies, together=len(bodies)) == alone
    assert publish(setting, everybody, bodies, together=1) == alone


PUBLISHED = [b'{"id":%d,"n":%d}' % (number % 3, number % 4) for number in range(20)]


def check_told(setting: Setting, connections: list[list[str]]) -> list[bytes]:
    """Check that all are told the same however messages come, and return what each is told."""
    alone = publish(setting, connections, PUBLISHED, together=0)
    for together in (1, 3, 20):
        assert publish(setting, connections, PUBLISHED, together) == alone
    return alone.told


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
@pytest.mark.parametrize("journaled", [False, True])
def test_a_subscription_is_told_the_same(name: str, *, journaled: bool) -> None:
    """Alone, and beside one that is told of new states only."""
    setting = Setting(journaled)
    check_told(setting, [[name]])
    assert b'"c":"p"' in check_told(setting, [["plain"], [name, "one"]])[-1]


@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {"said": "xe"},
        {"said": "e", "expiring": True},
        {"derived": True},
        {"pattern": True},
        {"history": True},
    ],
    ids=str,
)
def test_all_subscriptions_are_told_the_same(more: dict[str, Any], *, journaled: bool) -> None:
    """Each over a connection of its own, and beside one of another kind."""
    setting = Setting(journaled, **more)
    check_told(setting, [[name] for name in SUBSCRIPTIONS])
    told = check_told(setting, [[name, "one"] for name in SUBSCRIPTIONS if name != "one"])
    assert all(b'"c":"p"' in one for one in told)


def publish_to_lost_records(together: int) -> tuple[bytes, list[tuple[int, str]]]:
    """Publish to records whose file has been emptied; return messages, and reasons of refusals."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        core, disk = Core(), Disk(directory)
        stack.callback(disk.close)
        store, _ = disk.open(slab_size=1 << 16, topic="orders")
        stack.callback(store.close)
        core.keep(topic_spec("/id"), store=store)
        peer, publisher = core.log_on("subscriber"), core.log_on("publisher")
        peer.send({"t": "orders", "sub_id": "s", "cid": "s"} | SUBSCRIPTIONS["delta"])
        frames = [
            frame({"c": "publish", "t": "orders", "a": "processed", "s": number}, body)
            for number, body in enumerate(PUBLISHED * 2, 1)
        ]
        publisher.send_bytes(b"".join(frames[: len(PUBLISHED)]))
        (directory / "t.sow").write_bytes(b"")
        for start in range(len(PUBLISHED), len(frames), together):
            publisher.send_bytes(b"".join(frames[start : start + together]))
        acks = [ack for ack, _ in publisher.take_frames()]
        return peer.received, [(ack["s"], ack["reason"]) for ack in acks if "reason" in ack]


def test_publishes_to_records_that_cannot_be_read_are_refused() -> None:
    """For each by itself, whether they come together or alone."""
    told, refusals = alone = publish_to_lost_records(1)
    assert publish_to_lost_records(len(PUBLISHED)) == alone
    assert told.count(b'"c":"p"') == len(PUBLISHED)
    assert refusals == [(number, "not stored") for number in range(21, 41)]
