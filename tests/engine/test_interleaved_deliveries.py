"""Messages to several topics that come together are delivered as they are one by one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import MESSAGES, JournalEntry, JournalEntryKind, LogSpan
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.records import Record
from tests.engine.support import Core
from tests.storage.sow.support import SECOND, topic_spec
from tests.support.chances import examples
from tests.support.long_form import spread
from tests.support.raw import frame

TOPICS: Final = ("log/a", "log/b", "log/records", "log/kept", "other/a", "other/b", "other/kept")
PATTERN: Final = ("log/p1", "log/p2", "log/p3")
"""Topics of which one table has the records."""
MADE: Final = ("log/counted", "log/dated", "log/given")
"""Topics with an enrichment, a history, and keys of publishers."""
COUNT: Final = ("COALESCE(/count OF PREVIOUS, 0) + 1 AS /count",)
LOGGED_RECORDS: Final = ("log/records", "log/kept")
RECORDS: Final = tuple(topic for topic in TOPICS if topic.endswith(("records", "kept")))
SUBSCRIPTIONS: Final[dict[str, dict[str, Any]]] = {
    "all": {"t": ".*"},
    "stamped": {"t": ".*", "o": "timestamp"},
    "marked": {"t": ".*", "o": "bookmark"},
    "both": {"t": ".*", "o": "bookmark,timestamp"},
    "some marked": {"t": "^(log/[ar]|other/a)", "o": "bookmark,no_sowkey"},
    "selected": {"t": ".*", "o": "bookmark,select=[-/,+/n]"},
    "selected plainly": {"t": ".*", "o": "select=[-/,+/n,+/pad]"},
    "selected records": {"t": "^(log/[rk]|other)", "o": "select=[-/,+/id],timestamp"},
    "excluded": {"t": ".*", "o": "select=[-/pad],timestamp"},
    "filtered": {"t": ".*", "f": "/n > 2"},
    "filtered marked": {"t": "^log/", "f": "/n > 2", "o": "bookmark,timestamp"},
    "filtered others": {"t": "^other/", "f": "/n > 2", "o": "bookmark"},
    "conflated others": {"t": "^other/", "f": "/n > 1", "o": "bookmark,conflation=100ms"},
    "asking": {"t": ".*", "f": "BOOKMARK() LIKE '[24680]\\|$'", "o": "bookmark"},
    "live": {"t": "^log/", "bm": "0", "o": "live"},
    "deletions": {"t": ".*", "o": "oof,timestamp"},
    "focus": {"c": "subscribe", "t": ".*", "f": "/n > 2", "o": "oof,bookmark"},
    "delta": {"c": "delta_subscribe", "t": ".*", "o": "timestamp"},
    "conflated": {"t": ".*", "o": "bookmark,timestamp,conflation=100ms,conflation_key=[/id]"},
    "unmarked conflated": {"t": ".*", "o": "conflation=100ms,conflation_key=[/n]"},
    "query": {"c": "sow_and_subscribe", "t": "^log/r", "f": "/n < 4", "o": "oof,timestamp"},
    "query delta": {"c": "sow_and_delta_subscribe", "t": "^", "f": "/n < 4", "o": "oof"},
    "page": {"c": "sow_and_subscribe", "t": "log/kept", "o": "top_n=2", "orderby": "/n"},
    "page of a pattern": {"c": "sow_and_subscribe", "t": "log/p1", "o": "top_n=2", "orderby": "/n"},
    "one of a pattern": {"c": "subscribe", "t": "log/p2", "o": "timestamp"},
    "deltas of some": {"c": "delta_subscribe", "t": "^log/(p[13]|kept)", "o": "oof"},
    "focus of some": {"c": "subscribe", "t": "^log/p[12]", "f": "/n > 2", "o": "oof,bookmark"},
}


def deliveries(
    connections: Sequence[Sequence[str]],
    topics: Sequence[str],
    *,
    at_once: bool,
    numbered: bool,
    has_values: bool,
    has_deletions: bool = False,
    has_large: bool = False,
) -> tuple[list[bytes], list[Any]]:
    """Publish a message to each of these topics.

    With `has_large`, some are deltas that no journal has room for, which are refused.

    Returns:
        What subscribers and the publisher get; the log and the records.
    """
    core = Core()
    stores = {topic: MemoryStore() for topic in RECORDS}
    for topic, store in stores.items():
        core.keep(topic_spec("/id", name=topic), store=store)
    core.keep(
        topic_spec("/id", name="log/patterns", pattern="^log/p"),
        topic_spec("/id", name="log/counted", enrichment=COUNT),
        topic_spec("/id", name="log/dated", history=(3600 * SECOND, 0)),
        topic_spec(name="log/given"),
    )
    with tempfile.TemporaryDirectory() as directory:
        core.record(Path(directory), "^log/")
        peers = []
        for number, names in enumerate(connections):
            peer = core.log_on(f"subscriber-{number}")
            for name in names:
                peer.send({"c": "subscribe", "sub_id": name, "cid": name} | SUBSCRIPTIONS[name])
            peers.append(peer)
        core.clock.turn()
        publisher = core.log_on("publisher")
        frames = []
        for number, topic in enumerate(topics, 1):
            is_delta = (has_values or has_large) and number % 3 == 0
            command = "delta_publish" if is_delta else "publish"
            deletes = has_deletions and number % 5 == 0 and topic in (*RECORDS, *PATTERN, *MADE)
            header: dict[str, Any] = {"c": "sow_delete" if deletes else command, "t": topic}
            if has_values and not deletes and number % 4 > 1:
                header |= {"x": f"id-{number}", "k": str(number), "e": 60}
            if numbered:
                header |= {"s": number, "a": "persisted" if number % 2 else "processed"}
            if deletes:
                header |= {"cid": str(number), "a": "processed,stats"}
            value = number * number // 3 % 7
            body = b'{"id":%d,"n":%d,"pad":"%b"}' % (number % 3, value, b"x" * (number // 6 % 4))
            if has_large and is_delta:
                extra = b"x" * (1 << 20) if number % 5 == 0 and topic.startswith("log/") else b""
                body = b'{"id":0,"n":%d,"at %d":"%b"}' % (value, number, extra)
            frames.append(frame(header, body))
        for data in [b"".join(frames)] if at_once else frames:
            publisher.send_bytes(data)
        core.commit()
        core.clock.advance(1.5)
        journal = core.transaction_log.journal
        entries = journal.replay(LogSpan(0), kinds=frozenset(JournalEntryKind)).read(1_000)
        journal.close()
        records = {topic: records_in(store) for topic, store in stores.items()}
        for topic in LOGGED_RECORDS:
            assert {one.key: one.body for one in records[topic]} == records_of(entries, topic)
        return [peer.received for peer in [*peers, publisher]], [entries, records]


def records_in(store: MemoryStore) -> list[Record]:
    """Return the records of a store, with all that it keeps of them."""
    return sorted(store.read_record(row) for _, row in store.identities())


def records_of(entries: Sequence[JournalEntry], topic: str) -> dict[str, bytes]:
    """Return the bodies of the records of a topic as they follow from the log, by their keys."""
    records: dict[str, bytes] = {}
    for entry in entries:
        if entry.topic.name == topic and entry.kind == JournalEntryKind.SOW_DELETE:
            for key in json.loads(entry.body):
                del records[key]
        elif entry.topic.name == topic and entry.kind in MESSAGES:
            records[str(entry.sow_key)] = entry.body
    return records


@settings(max_examples=examples(200, 8), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*SUBSCRIPTIONS]), max_size=3, unique=True), max_size=4),
    st.lists(st.sampled_from(TOPICS + PATTERN + MADE), min_size=1, max_size=6, unique=True).flatmap(
        lambda some: st.lists(st.sampled_from(some), min_size=8, max_size=40)
    ),
    st.fixed_dictionaries(
        {name: st.booleans() for name in ("numbered", "has_values", "has_deletions")}
    ),
)
def test_subscribers_get_the_same_bytes(
    connections: list[list[str]], topics: list[str], headers: dict[str, bool]
) -> None:
    """Whatever options they have, and over one connection or several."""
    alone = deliveries(connections, topics, at_once=False, **headers)
    assert deliveries(connections, topics, at_once=True, **headers) == alone


HEADERS: Final = (
    {"numbered": False, "has_values": False, "has_deletions": False},
    {"numbered": True, "has_values": True, "has_deletions": False},
    {"numbered": True, "has_values": False, "has_deletions": True},
)
WITH_HEADERS: Final = [
    (name, HEADERS[(number + turn) % 3])
    for number, name in enumerate(SUBSCRIPTIONS)
    for turn in range(3)
]
"""Each subscription with all headers; in runs that are not long, with those of its turn."""


@pytest.mark.parametrize("shift", spread(range(3), 1))
@pytest.mark.parametrize(
    ("name", "headers"), spread(WITH_HEADERS, len(SUBSCRIPTIONS), several=True)
)
def test_a_subscription_gets_the_same_bytes(
    name: str, headers: dict[str, bool], shift: int
) -> None:
    """From all topics, from one, alone on its connection or not."""
    topics = [TOPICS[(number * 3 + number // 5) % len(TOPICS)] for number in range(60)]
    connections = ([[name]], [[name], ["all"]], [[name, "stamped"], ["marked"]])
    mixed = (
        topics,
        PATTERN * 15,
        MADE * 15,
        MADE[1:2] * 20,
        MADE[2:] * 20,
        (*MADE, *PATTERN) * 6,
        (*PATTERN, *RECORDS, TOPICS[0]) * 6,
        TOPICS[:2] * 20,
        RECORDS[:2] * 20,
        RECORDS[:1] * 20,
        TOPICS[:1] * 20,
    )
    sequences = (*mixed, (TOPICS[0], TOPICS[4]) * 20, (TOPICS[3], TOPICS[5]) * 20)
    for number, some in enumerate(sequences, shift + headers["numbered"]):
        on = connections[number % len(connections)]
        alone = deliveries(on, some, at_once=False, **headers)
        assert deliveries(on, some, at_once=True, **headers) == alone


@pytest.mark.parametrize("also", [("log/a",), ("other/kept", "other/a")])
def test_what_is_refused_among_deltas_leaves_nothing_in_those_behind_it(
    also: Sequence[str],
) -> None:
    topics = [("log/records", "log/kept", *also)[number % (2 + len(also))] for number in range(40)]
    headers = {"numbered": True, "has_values": False, "has_large": True}
    for names in (["all"], []):
        on = [names, ["query"]]
        (*alone, _), alone_state = deliveries(on, topics, at_once=False, **headers)
        (*together, _), state = deliveries(on, topics, at_once=True, **headers)
        assert (together, state) == (alone, alone_state)  # the publisher gets failures first


def test_topics_that_come_together_are_acknowledged_when_all_are_safe(tmp_path: Path) -> None:
    """Those in the log are safe with it, also beside records that are safe at once."""
    core = Core()
    core.keep(topic_spec("/id", name="other/kept"))
    core.record(tmp_path, "^log/")
    publisher = core.log_on("publisher")
    publisher.take_frames()
    acknowledged = []
    for first in (1, 3):  # the first two headers are read by themselves
        numbers = range(first, 3 * first)
        topics = ("other/kept", "log/a") * first
        publisher.send_bytes(
            b"".join(
                frame({"c": "publish", "t": topic, "s": number, "a": "persisted"}, b'{"id":1}')
                for number, topic in zip(numbers, topics, strict=False)
            )
        )
        core.clock.advance(1.5)
        early = [header["s"] for header, _ in publisher.take_frames()]
        assert early == ([1] if first == 1 else [])
        core.commit()
        core.clock.advance(1.5)
        acknowledged.append([header["s"] for header, _ in publisher.take_frames()])
    core.transaction_log.journal.close()
    assert acknowledged == [[2], [8]]


def test_a_topic_that_has_lost_its_subscriber_is_not_delivered_with_others(tmp_path: Path) -> None:
    """Also one with records beside one without, and beside another one with records."""
    core = Core()
    core.keep(*(topic_spec("/id", name=topic) for topic in RECORDS))
    core.record(tmp_path, "^log/")
    leaving, staying = core.log_on("leaving"), core.log_on("staying")
    leaving.send({"c": "subscribe", "sub_id": "1", "t": "log/records"})
    for name in ("log/a", "log/kept"):
        staying.send({"c": "subscribe", "sub_id": name, "t": name})
    core.clock.turn()
    publisher = core.log_on("publisher")

    def publish(topics: Sequence[str], first: int) -> None:
        headers = [{"c": "publish", "t": t, "s": n} for n, t in enumerate(topics, first)]
        publisher.send_bytes(b"".join(frame(header, b'{"id":1}') for header in headers))
        core.commit()
        core.clock.advance(1.5)

    publish(("log/records", "log/a", "log/kept") * 4, 1)
    assert len(leaving.take_frames()) == 4
    leaving.send({"c": "unsubscribe", "sub_id": "1"})
    staying.take_frames()
    publish(("log/records", "log/a") * 4, 101)
    publish(("log/records", "log/kept", "log/a") * 4, 201)
    assert leaving.take_frames() == []
    assert [header["t"] for header, _ in staying.take_frames()] == (
        ["log/a"] * 4 + ["log/kept", "log/a"] * 4
    )
    core.transaction_log.journal.close()


def test_what_is_acknowledged_before_a_refused_message_without_acks(tmp_path: Path) -> None:
    core = Core()
    core.keep(topic_spec("/id", name="other/kept"))
    core.record(tmp_path, "^log/")
    publisher = core.log_on("publisher")
    for first in (1, 3):  # the first two headers are read by themselves
        last = b"{" if first > 1 else b'{"id":2}'
        asked = {"c": "publish", "t": "other/kept", "s": first, "a": "persisted"}
        silent = {"c": "publish", "t": "other/kept", "s": first + 1}
        publisher.send_bytes(frame(asked, b'{"id":1}') + frame(silent, last))
        core.commit()
        core.clock.advance(1.5)
    acks = [header for header, _ in publisher.take_frames() if header["c"] == "ack"]
    core.transaction_log.journal.close()
    assert max(ack["s"] for ack in acks if ack["status"] == "success") == 3
