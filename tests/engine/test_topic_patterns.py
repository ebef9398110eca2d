"""Subscriptions to regular expressions cost those who use new topics little, whatever they are."""

from __future__ import annotations

import gc
import weakref

import pytest

from server.expressions import topic_names
from server.expressions.regex.budget import LONG_SEARCHES
from server.expressions.topic_names import select_topics
from server.topics import topic_table
from server.topics.pattern_index import PatternIndex
from server.util import limits
from tests.engine.support import Core, CorePeer

COSTLY = "^(\\w+)+[!#]{%d}$"
NAME = "orders_europe_london_equities_large_and_small_caps"


def subscribe(peer: CorePeer, topic: str, sub_id: str) -> str:
    """Subscribe, and tell how that went."""
    peer.take_frames()
    peer.send({"c": "subscribe", "sub_id": sub_id, "t": topic, "a": "processed", "o": "replace"})
    return str(peer.take_frames()[-1][0]["status"])


def hears(peer: CorePeer) -> set[str]:
    """The ids of the subscriptions for which messages have come since the last time."""
    frames = [header for header, _ in peer.take_frames() if header["c"] == "p"]
    return {sub_id for header in frames for sub_id in header["sids"].split(",")}


def patterns_tried(core: Core, name: str) -> int:
    """How many expressions are tried for a new name."""
    patterns = PatternIndex()
    for session in core.engine.sessions:
        for subscription in session.subscriptions.values():
            patterns.add(subscription)
    return sum(1 for _ in patterns.candidates(name))


def test_a_new_topic_is_matched_against_few_of_many_expressions() -> None:
    """Those that share a rare text with it, and those that have no text."""
    core = Core()
    for number in range(4):
        peer = core.log_on(f"client {number}")
        for desk in range(100):
            assert subscribe(peer, f"^orders/{number}/{desk:03}/.*[0-9]$", str(desk)) == "success"
    last = core.log_on("last")
    for sub_id, topic in enumerate((".*", "[0-9]/017|x", "018/a?$")):
        assert subscribe(last, topic, str(sub_id)) == "success"
    assert patterns_tried(core, "orders/2/017/x5") < 50
    peer.take_frames()
    peer.send({"c": "publish", "t": "orders/3/017/x5"}, b"{}")
    assert hears(peer) == {"17"}
    assert hears(last) == {"0", "1"}


def test_equal_expressions_are_compiled_and_tried_once() -> None:
    """And let go of with the last who has one."""
    core = Core()
    peers = [core.log_on(f"client {number}") for number in range(20)]
    for peer in peers:
        assert subscribe(peer, "^[a-z]+/[0-9]+$", "1") == "success"
    assert patterns_tried(core, "orders/1") == 1
    pattern = select_topics("^[a-z]+/[0-9]+$").pattern
    assert pattern is not None
    gone = weakref.ref(pattern)
    del pattern
    peers[0].send({"c": "publish", "t": "orders/1"}, b"{}")
    assert [hears(peer) for peer in peers] == [{"1"}] * 20
    for peer in peers:
        peer.leave()
    gc.collect()
    assert gone() is None
    assert "^[a-z]+/[0-9]+$" not in topic_names._compiled


def test_expressions_that_take_too_long_end() -> None:
    """For a name, those of a connection may take long few times; others do not notice."""
    core = Core()
    costly, quiet = core.log_on("costly"), core.log_on("quiet")
    for number in range(40):
        assert subscribe(costly, COSTLY % (number + 1), str(number)) == "success"
    assert subscribe(quiet, ".*", "all") == "success"
    assert subscribe(quiet, COSTLY % 1, "same") == "success"
    publisher = core.log_on("publisher")
    publisher.send({"c": "publish", "t": NAME}, b"{}")
    core.clock.advance(0)
    assert hears(quiet) == {"all"}
    (session,) = (one for one in core.engine.sessions if one.client_name == "costly")
    assert len(session.subscriptions) == LONG_SEARCHES
    ended = [header for header, _ in costly.take_frames() if header["c"] == "ack"]
    assert {ack["reason"] for ack in ended} == {"subscription ended"}
    assert sum(entry == "14-0005" for entry, _ in core.log.entries) == 40 - LONG_SEARCHES
    (session,) = (one for one in core.engine.sessions if one.client_name == "quiet")
    assert set(session.subscriptions) == {"all", "same"}


def test_an_expression_that_takes_too_long_for_the_topics_there_are_is_refused() -> None:
    """The names before it count together."""
    core = Core()
    publisher, costly = core.log_on("publisher"), core.log_on("costly")
    for number in range(LONG_SEARCHES + 1):
        publisher.send({"c": "publish", "t": f"{NAME}_{number}"}, b"{}")
    costly.take_frames()
    costly.send({"c": "subscribe", "t": COSTLY % 1, "cid": "1", "a": "processed"})
    ((ack, _),) = costly.take_frames()
    assert (ack["status"], ack["reason"]) == ("failure", "bad regex topic")
    publisher.send({"c": "publish", "t": f"{NAME}_new"}, b"{}")
    assert not [entry for entry, _ in core.log.entries if entry == "14-0005"]


def test_a_connection_may_have_so_many_expressions() -> None:
    """One more is refused; names, and replacements, are not."""
    most = limits.MAX_PATTERNS
    core = Core()
    peer = core.log_on()
    answers = [subscribe(peer, f"^topic{number}.*", str(number)) for number in range(most + 1)]
    assert answers == ["success"] * most + ["failure"]
    assert subscribe(peer, "name", "a name") == "success"
    assert subscribe(peer, "^other.*", "3") == "success"
    assert subscribe(core.log_on("other"), "^other.*", "1") == "success"


@pytest.mark.parametrize("command", ["publish", "delta_publish", "subscribe", "sow", "sow_delete"])
def test_the_names_of_topics_have_a_limit(command: str) -> None:
    """A longer one is refused by the command that has it."""
    core = Core()
    peer = core.log_on()
    for length, is_too_long in (
        (limits.MAX_TOPIC_NAME_LENGTH, False),
        (limits.MAX_TOPIC_NAME_LENGTH + 1, True),
    ):
        peer.take_frames()
        peer.send({"c": command, "t": "x" * length, "cid": "1", "a": "processed"}, b"{}")
        answer = peer.take_frames()[0][0]
        assert (str(limits.MAX_TOPIC_NAME_LENGTH) in answer.get("detail", "")) is is_too_long


def test_topics_without_subscribers_are_let_go_of() -> None:
    """As many as there have ever been; those with a subscription to their name stay."""
    core = Core()
    core.engine.topics = topic_table.TopicTable(
        core.types,
        core.engine.settings.functions,
        core.engine.sow_registry,
        core.engine.scheduler.queue_task,
        1_000_000,
    )
    subscriber, publisher = core.log_on("subscriber"), core.log_on("publisher")
    assert subscribe(subscriber, "topic/7", "1") == "success"
    assert subscribe(subscriber, "^topic/.*7$", "2") == "success"
    most = 0
    for number in range(2_000):
        publisher.send({"c": "publish", "t": f"topic/{number}"}, b"{}")
        core.clock.advance(0)
        most = max(most, len(core.engine.topics))
    assert most < 200
    subscriber.take_frames()
    for number in 7, 17:
        publisher.send({"c": "publish", "t": f"topic/{number}"}, b"{}")
    assert [header["sids"] for header, _ in subscriber.take_frames()] == ["1,2", "2"]
