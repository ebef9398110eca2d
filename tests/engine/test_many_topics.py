"""Subscriptions to regular expressions over very many topics begin and end in steps."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from server.engine.scheduler import ROUND_SECONDS
from server.topics.topic import Topic
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

TOPICS = 3000
MAX_IN_A_TURN = 1000
"""Topics that a turn may deal with: a few slices."""


@pytest.fixture
def core() -> Core:
    """An engine with many topics, to which somebody subscribes by name, and one with records."""
    core = Core()
    core.keep(topic_spec("/id", name="t/records"))
    holder = core.log_on("holder")
    for start in range(0, TOPICS, 500):
        holder.send_bytes(
            b"".join(
                frame({"c": "subscribe", "sub_id": str(n), "t": f"t/{n}"})
                for n in range(start, start + 500)
            )
        )
    holder.send({"c": "publish", "t": "t/records"}, b'{"id":1}')
    core.clock.advance(0)
    core.clock.work_per_look = ROUND_SECONDS
    return core


def attached(core: Core) -> int:
    """To how many topics there is a subscription by regular expression."""
    topics = [core.engine.topics.find("json", f"t/{n}") for n in range(TOPICS)]
    return sum(isinstance(topic, Topic) and topic.subscription_count > 1 for topic in topics)


def kinds(peer: CorePeer) -> list[str]:
    """What a client was sent since the last time: acks, or the bodies of messages."""
    return [header.get("a") or body.decode() for header, body in peer.take_frames()]


def publish(core: Core, publisher: CorePeer, topic: str, body: bytes) -> None:
    """Publish a message, and let all of it be delivered."""
    publisher.send({"c": "publish", "t": topic}, body)
    core.engine.flush()


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_a_subscription_begins_in_steps(core: Core, command: str) -> None:
    """Its answer comes first, then what was published meanwhile; nothing is missed after it."""
    peer, publisher = core.log_on("peer"), core.log_on("publisher")
    peer.send({"c": "subscribe", "sub_id": "other", "t": "other"})
    peer.take_frames()
    peer.send({"c": command, "sub_id": "all", "t": "^t/", "cid": "1", "a": "processed,completed"})
    counts = [attached(core)]
    publish(core, publisher, "other", b'"other"')
    publish(core, publisher, "t/0", b'"early"')
    publish(core, publisher, "t/new", b'"new"')
    publish(core, publisher, "t/records", b'{"id":2}')
    while peer.is_paused:
        assert kinds(peer) == []
        core.clock.turn()
        counts.append(attached(core))
    assert counts[-1] == TOPICS
    assert max(after - before for before, after in pairwise(counts)) <= MAX_IN_A_TURN
    for _ in range(10):
        core.clock.turn()
    publish(core, publisher, f"t/{TOPICS - 1}", b'"late"')
    publish(core, publisher, "t/records", b'{"id":3}')
    got = kinds(peer)
    after = ['"other"', '"early"', '"new"', '"late"', '{"id":3}']
    assert got[0] == "processed"
    assert [one for one in got if one in after] == after
    found = [one for one in got if one not in after][1:]
    if command == "subscribe":
        assert found == []
    else:
        records = "".join(one for one in found if "}{" in one or '"k"' in one)
        assert records.count('{"id":') == 2
        assert found[-1] == "completed"


def test_a_subscription_ends_in_steps(core: Core) -> None:
    """When that has been acknowledged, nothing of it is left."""
    peer, publisher = core.log_on("peer"), core.log_on("publisher")
    peer.send({"c": "subscribe", "sub_id": "all", "t": "^t/"})
    core.clock.advance(0)
    peer.take_frames()
    assert attached(core) == TOPICS
    peer.send({"c": "unsubscribe", "sub_id": "all", "cid": "2", "a": "processed"})
    counts = [attached(core)]
    while peer.is_paused:
        core.clock.turn()
        counts.append(attached(core))
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= MAX_IN_A_TURN
    publish(core, publisher, "t/5", b'"late"')
    publish(core, publisher, "t/another", b'"late"')
    assert kinds(peer) == ["processed"]


@pytest.mark.parametrize("when", ["at once", "later"])
def test_it_ends_in_steps_with_its_client(core: Core, when: str) -> None:
    """Also if that goes while its subscription has only begun."""
    peer = core.log_on("peer")
    peer.send({"c": "subscribe", "sub_id": "all", "t": "^t/"})
    if when == "later":
        core.clock.advance(0)
    before = attached(core)
    assert before
    next(one for one in core.engine.sessions if one.client_name == "peer").close("test")
    counts = [before, attached(core)]
    while counts[-1]:
        core.clock.turn()
        counts.append(attached(core))
        assert len(counts) < 100
    core.clock.advance(0)
    assert max(before - after for before, after in pairwise(counts)) <= MAX_IN_A_TURN
    assert core.engine.sessions_ending == 0
    after = core.engine.topics.find("json", "t/after")
    assert not after.has_subscriptions


def test_a_replacement_is_made_in_one_piece(core: Core) -> None:
    """It is atomic: every message is matched by the one or the other."""
    peer, publisher = core.log_on("peer"), core.log_on("publisher")
    peer.send({"c": "subscribe", "sub_id": "all", "t": "^t/", "f": "/a = 1"})
    core.clock.advance(0)
    peer.send({"c": "subscribe", "sub_id": "all", "t": "^t/", "f": "/a = 2", "o": "replace"})
    for a in (1, 2):
        publish(core, publisher, f"t/{TOPICS - 1}", json.dumps({"a": a}).encode())
    assert kinds(peer) == ['{"a": 2}']
