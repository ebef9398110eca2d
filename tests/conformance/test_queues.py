"""Queues: what enters them, and who gets which message (AMPS User Guide, Message Queues)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest

from tests.support.queues import bookmarks, consume, done, elements, numbers, put, take
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import receive_group

_MODELS = ("fast", "round-robin", "proportional")

QUEUES: dict[str, dict[str, str | int]] = {
    "plain": {},
    "alone": {"MaxPerSubscriptionBacklog": 1},
    "unsaid": {"MaxPerSubscriptionBacklog": 100},
    "shared-1": {},
    "shared-2": {},
    "filters": {},
    "returned": {},
    "unsubscribed": {},
    "leased": {"LeasePeriod": "200ms"},
    "header": {"LeasePeriod": "1h"},
    "limited": {"MaxBacklog": 3},
    "narrow": {"MaxPerSubscriptionBacklog": 2},
    "paused": {},
    "replaced": {},
    "moved-1": {},
    "moved-2": {"MaxPerSubscriptionBacklog": 2},
    "once": {"Semantics": "at-most-once"},
    "once-returned": {"Semantics": "at-most-once"},
    "priority": {"Priority": "/p"},
    "barrier": {"BarrierExpression": "/b IS NOT NULL"},
    "chosen": {"Filter": "/n &gt; 2"},
    "several": {"UnderlyingTopic": "^in-several-", "DefaultPublishTarget": "in-several-1"},
    "in-own": {"UnderlyingTopic": "in-own"},
    "records": {"UnderlyingTopic": "in-records"},
    "replay": {},
    "queried": {},
    "long": {},
    "verbatim": {},
    "local": {"element": "LocalQueue"},
    "group": {"element": "GroupLocalQueue", "InitialOwner": "elsewhere"},
    **{f"fair-{model}": {"FairnessModel": model} for model in _MODELS},
}

RECORDS = """
<Topic>
  <Name>in-records</Name><MessageType>json</MessageType><Key>/id</Key>
  <FileName>./sow/%n.sow</FileName>
</Topic>
"""


server = module_server(elements(QUEUES, RECORDS))


@pytest.mark.parametrize("name", ["plain", "local", "group"])
def test_messages_come_in_order_with_bookmarks(
    server: RunningServer, peer: RawPeer, name: str
) -> None:
    """The topic in the header is the queue's, and each message can be acknowledged."""
    put(server, f"in-{name}", range(5))
    consume(peer, name)
    messages = take(peer, 5)
    assert numbers(messages) == [0, 1, 2, 3, 4]
    assert {(header["c"], header["t"], header["sids"]) for header, _ in messages} == {
        ("p", name, "s")
    }
    assert len({header["bm"] for header, _ in messages}) == 5
    assert all(re.fullmatch(r"\d+\|\d+\|", header["bm"]) for header, _ in messages)
    assert "lp" not in messages[0][0]
    assert done(peer, name, bm=bookmarks(messages)) == 5
    assert done(peer, name, bm=bookmarks(messages)) == 0


def test_the_lease_is_in_the_header(server: RunningServer, peer: RawPeer) -> None:
    """It ends the queue's LeasePeriod after the delivery, in UTC."""
    put(server, "in-header", [1])
    before = datetime.now(UTC)
    consume(peer, "header", ts="true", o="timestamp")
    header, _ = peer.receive()
    until = datetime.strptime(header["lp"], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    assert 3590 < (until - before).total_seconds() < 3660
    assert header["ts"]


BACKLOGS = [
    ("unsaid", None, 1),
    ("unsaid", 10, 10),
    ("unsaid", 1000, 100),
    ("alone", 10, 1),
    ("narrow", 5, 2),
    ("^moved-", 10, 2),
]


@pytest.mark.parametrize(("topic", "asked", "given"), BACKLOGS)
def test_the_backlog_is_the_least_of_all(
    peer: RawPeer, topic: str, asked: int | None, given: int
) -> None:
    """Of what the subscription asks for, 1 if nothing, and what its queues allow."""
    assert consume(peer, topic, asked)["opts"] == f"max_backlog={given}"


@pytest.mark.parametrize("text", ["-1", "x", "", "1.5", "9" * 30])
def test_impossible_backlogs_are_refused(peer: RawPeer, text: str) -> None:
    """With the option's name in the reason."""
    ack = peer.subscribe("plain", "s", o=f"max_backlog={text}")
    assert ack["status"] == "failure"
    assert ack["reason"] == "invalid option"


def test_a_consumer_has_no_more_than_its_backlog(server: RunningServer, peer: RawPeer) -> None:
    """Each acknowledgement makes room for one."""
    put(server, "in-narrow", range(4))
    consume(peer, "narrow")
    first = take(peer, 2)
    assert peer.hears_nothing()
    assert done(peer, "narrow", bm=bookmarks(first[1:])) == 1
    assert numbers(take(peer, 1)) == [2]
    assert done(peer, "narrow", filter="1=1") == 3


def test_max_backlog_is_for_all_consumers(
    server: RunningServer, peer: RawPeer, other: RawPeer
) -> None:
    """An acknowledgement of one lets the other go on."""
    consume(peer, "limited", 2)
    consume(other, "limited", 2)
    put(server, "in-limited", [0])
    first = take(peer, 1)
    put(server, "in-limited", [1])
    second = take(other, 1)
    put(server, "in-limited", [2, 3])
    third = take(peer, 1)
    assert other.hears_nothing()
    assert done(peer, "limited", bm=bookmarks(second)) == 1
    assert numbers(first + third + take(other, 1)) == [0, 2, 3]


def test_a_backlog_is_one_for_all_queues_of_a_subscription(
    server: RunningServer, peer: RawPeer
) -> None:
    """A regular expression consumes from each queue that it matches."""
    consume(peer, "^shared-[12]$", 2)
    put(server, "in-shared-1", [1])
    first = take(peer, 1)
    put(server, "in-shared-2", [2])
    second = take(peer, 1)
    assert [header["t"] for header, _ in first + second] == ["shared-1", "shared-2"]
    put(server, "in-shared-2", [3])
    assert peer.hears_nothing()
    assert done(peer, "shared-1", bm=bookmarks(first)) == 1
    assert numbers(take(peer, 1)) == [3]


def test_filters_choose(server: RunningServer, peer: RawPeer, other: RawPeer) -> None:
    """A consumer whose filter matches nothing makes nobody wait."""
    consume(peer, "filters", filter="/n = 100")
    put(server, "in-filters", range(3))
    consume(other, "filters", filter="/n > 0")
    assert numbers(take(other, 2)) == [1, 2]
    consume(other, "filters", sub_id="rest")
    header, _ = message = other.receive()
    assert (header["sids"], numbers([message])) == ("rest", [0])
    assert peer.hears_nothing()


@pytest.mark.parametrize("way", ["disconnect", "unsubscribe"])
def test_what_is_not_acknowledged_comes_back_first(
    server: RunningServer, peer: RawPeer, way: str
) -> None:
    """In the order of the queue, before what has come since."""
    name = "returned" if way == "disconnect" else "unsubscribed"
    with server.log_on("leaver") as leaver:
        consume(leaver, name, 3)
        put(server, f"in-{name}", range(4))
        messages = take(leaver, 3)
        assert done(leaver, name, bm=bookmarks(messages[1:2])) == 1
        assert numbers(take(leaver, 1)) == [3]
        put(server, f"in-{name}", [4])
        if way == "unsubscribe":
            ack = leaver.ask({"c": "unsubscribe", "cid": "u", "sub_id": "s", "a": "processed"})
            assert ack["status"] == "success"
    consume(peer, name)
    assert numbers(take(peer, 4)) == [0, 2, 3, 4]


def test_leases_end(server: RunningServer, peer: RawPeer, other: RawPeer) -> None:
    """A message comes to whoever is next, and who had it may still acknowledge it."""
    put(server, "in-leased", [1])
    consume(peer, "leased", 1)
    first = take(peer, 1)
    consume(other, "leased", 1)
    peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "s", "a": "processed"})
    again = take(other, 1)
    assert (bookmarks(again), again[0][1]) == (bookmarks(first), first[0][1])
    assert take(other, 1)[0][0]["bm"] == bookmarks(first)  # its lease has ended, too
    assert done(peer, "leased", bm=bookmarks(first)) == 1


def test_a_paused_consumer(server: RunningServer, peer: RawPeer) -> None:
    """A backlog of 0 gets nothing, until it is replaced."""
    assert consume(peer, "paused", 0)["opts"] == "max_backlog=0"
    put(server, "in-paused", [1])
    assert peer.hears_nothing()
    assert consume(peer, "paused", 2, o="replace")["opts"] == "max_backlog=2"
    assert numbers(take(peer, 1)) == [1]


def test_a_replaced_consumer_keeps_what_it_has(server: RunningServer, peer: RawPeer) -> None:
    """A smaller backlog waits until enough is acknowledged; the new filter counts at once."""
    put(server, "in-replaced", range(6))
    consume(peer, "replaced", 4)
    messages = take(peer, 4)
    ack = consume(peer, "replaced", 2, o="replace", filter="/n = 5")
    assert ack["opts"] == "max_backlog=2"
    assert done(peer, "replaced", bm=bookmarks(messages[:2])) == 2
    assert peer.hears_nothing()
    assert done(peer, "replaced", bm=bookmarks(messages[2:3])) == 1
    assert numbers(take(peer, 1)) == [5]


def test_a_replacement_that_does_not_say_keeps_the_backlog(peer: RawPeer) -> None:
    """Only what it says is changed."""
    assert consume(peer, "unsaid", 7)["opts"] == "max_backlog=7"
    assert consume(peer, "unsaid", None, o="replace")["opts"] == "max_backlog=7"


def test_a_replacement_may_be_for_another_queue(server: RunningServer, peer: RawPeer) -> None:
    """What it has of the old queue counts in its new backlog, and can be acknowledged."""
    put(server, "in-moved-1", range(3))
    put(server, "in-moved-2", [10])
    consume(peer, "moved-1", 10)
    messages = take(peer, 3)
    assert consume(peer, "moved-2", None, o="replace")["opts"] == "max_backlog=2"
    assert peer.hears_nothing()
    assert done(peer, "moved-1", bm=bookmarks(messages[:2])) == 2
    assert numbers(take(peer, 1)) == [10]


def test_at_most_once(server: RunningServer, peer: RawPeer) -> None:
    """What is sent has left the queue, counts in the backlog until acknowledged, and is not leased.

    It does not come back.
    """
    with server.log_on("leaver") as leaver:
        consume(leaver, "once", 2)
        put(server, "in-once", range(4))
        messages = take(leaver, 2)
        assert numbers(messages) == [0, 1]
        assert "lp" not in messages[0][0]
        assert leaver.hears_nothing()
        assert done(leaver, "once", bm=bookmarks(messages[:1]), o="cancel") == 1
        assert numbers(take(leaver, 1)) == [2]
    consume(peer, "once")
    assert numbers(take(peer, 1)) == [3]
    assert peer.hears_nothing()


# Outstanding messages of three consumers with backlogs 1, 2 and 4, after so many messages.
FAIRNESS = [
    ("fast", 3, (1, 2, 0)),
    ("round-robin", 3, (1, 1, 1)),
    ("round-robin", 5, (1, 2, 2)),
    ("proportional", 4, (1, 1, 2)),
    ("proportional", 6, (1, 2, 3)),
]


@pytest.mark.parametrize(("model", "count", "expected"), FAIRNESS)
def test_fairness(
    server: RunningServer, peer: RawPeer, model: str, count: int, expected: Sequence[int]
) -> None:
    """Each message goes to whom the model chooses."""
    name = f"fair-{model}"
    with ExitStack() as stack:
        consumers = [stack.enter_context(server.log_on(f"c{number}")) for number in range(3)]
        for consumer, backlog in zip(consumers, (1, 2, 4), strict=True):
            consume(consumer, name, backlog)
        put(server, f"in-{name}", range(count))
        got = [take(consumer, given) for consumer, given in zip(consumers, expected, strict=True)]
        assert sorted(chain(*map(numbers, got))) == list(range(count))
        assert all(consumer.hears_nothing() for consumer in consumers)
        assert done(peer, name, filter="1=1") == count


def test_priorities(server: RunningServer, peer: RawPeer) -> None:
    """The highest first, the oldest of equals; what is no number comes last."""
    bodies = [
        '{"n":0}',
        '{"n":1,"p":2}',
        '{"n":2,"p":"x"}',
        '{"n":3,"p":10}',
        '{"n":4,"p":2}',
        '{"n":5,"p":18446744073709551615}',
        '{"n":6,"p":0}',
        '{"n":7,"p":null}',
        '{"n":8,"p":"9"}',
        '{"n":9,"p":-5}',
        '{"n":10,"p":1e30}',
        '{"n":11,"p":18446744073709551616}',
    ]
    put(server, "in-priority", bodies)
    consume(peer, "priority")
    order = [json.loads(body)["n"] for _, body in take(peer, len(bodies))]
    assert order == [5, 10, 11, 3, 8, 1, 4, 6, 9, 0, 2, 7]


def test_barriers(server: RunningServer, peer: RawPeer, other: RawPeer) -> None:
    """A barrier waits for all before it, goes to everybody whom it matches, and lets others pass.

    It needs no acknowledgement, no room in a backlog, and is not leased.
    """
    with server.log_on("stranger") as stranger:
        consume(stranger, "barrier", filter="/b = 'nothing'")
        consume(peer, "barrier", 1, filter="/n < 2 OR /b IS NOT NULL")
        consume(other, "barrier", 0)
        put(server, "in-barrier", [0])
        first = take(peer, 1)
        put(server, "in-barrier", [b'{"b":1}', 1])
        assert peer.hears_nothing()
        assert other.hears_nothing()
        assert done(peer, "barrier", bm=bookmarks(first)) == 1
        assert [body for _, body in take(peer, 2)] == [b'{"b":1}', b'{"n":1}']
        header, body = other.receive()
        assert (body, "lp" in header) == (b'{"b":1}', False)
        assert stranger.hears_nothing()
    assert done(other, "barrier", bm=header["bm"]) == 0


def test_a_filter_of_the_queue(server: RunningServer, peer: RawPeer) -> None:
    """Only what matches it enters the queue."""
    put(server, "in-chosen", [1, 3, b"no json at all", 2, 4])
    consume(peer, "chosen")
    assert numbers(take(peer, 2)) == [3, 4]
    assert peer.hears_nothing()


def test_several_underlying_topics(peer: RawPeer, other: RawPeer) -> None:
    """They are one stream; what is published to the queue goes to DefaultPublishTarget."""
    other.subscribe("in-several-1", "target")
    consume(peer, "several")
    for number, topic in enumerate(("in-several-1", "several", "in-several-2")):
        other.publish(topic, b'{"n":%d}' % number)
    assert numbers(take(peer, 3)) == [0, 1, 2]
    assert numbers(take(other, 2)) == [0, 1]


def test_a_queue_of_its_own_name(server: RunningServer, peer: RawPeer) -> None:
    """A subscription to it consumes; what is published to it enters it once."""
    put(server, "in-own", [1, 2])
    consume(peer, "in-own", 1)
    message = take(peer, 1)
    assert numbers(message) == [1]
    assert peer.hears_nothing()
    assert done(peer, "in-own", bm=bookmarks(message)) == 1
    assert numbers(take(peer, 1)) == [2]


def test_records_as_underlying_topic(server: RunningServer, peer: RawPeer) -> None:
    """Each publish is a message, a delta merged; what becomes of the record does not matter."""
    put(server, "in-records", [b'{"id":1,"a":1}'])
    peer.send({"c": "delta_publish", "t": "in-records"}, b'{"id":1,"b":2}')
    peer.flush()
    assert done(peer, "in-records", filter="1=1") == 1
    consume(peer, "records", o="oof")
    assert [body for _, body in take(peer, 2)] == [b'{"id":1,"a":1}', b'{"id":1,"a":1,"b":2}']
    assert peer.hears_nothing()


def test_bookmark_subscriptions_replay_the_underlying_topic(
    server: RunningServer, peer: RawPeer, other: RawPeer
) -> None:
    """Nothing is leased, and what has left the queue comes, too."""
    put(server, "in-replay", range(3))
    consume(peer, "replay", 1)
    assert done(peer, "replay", bm=bookmarks(take(peer, 1))) == 1
    assert other.subscribe("replay", "r", bm="0")["status"] == "success"
    messages = take(other, 3)
    assert numbers(messages) == [0, 1, 2]
    assert not any("lp" in header for header, _ in messages)
    assert numbers(take(peer, 1)) == [1]


COMMANDS = [
    ({"c": "subscribe"}, b'{"n":1,"m":2}'),
    ({"c": "subscribe", "o": "select=[-/,+/n]"}, b'{"n":1}'),
    ({"c": "delta_subscribe"}, b'{"n":1,"m":2}'),
    ({"c": "subscribe", "o": "oof"}, b'{"n":1,"m":2}'),
    ({"c": "subscribe", "o": "no_empties,send_keys"}, b'{"n":1,"m":2}'),
]


@pytest.mark.parametrize(("keys", "body"), COMMANDS)
def test_how_messages_are_presented(
    server: RunningServer, peer: RawPeer, other: RawPeer, keys: dict[str, str], body: bytes
) -> None:
    """Select lists cut; deltas are whole messages; what follows records has no effect."""
    put(server, "in-verbatim", [b'{"n":1,"m":2}'])
    command = keys["c"]
    ack = peer.ask({"cid": "s", "sub_id": "s", "t": "verbatim", "a": "processed"} | keys)
    assert (ack["status"], command) == ("success", command), ack
    header, received = peer.receive()
    assert received == body
    assert done(other, "verbatim", bm=header["bm"]) == 1


def test_a_query_and_consuming(server: RunningServer, peer: RawPeer) -> None:
    """First what can be seen, which leases nothing; then messages, of which each is leased."""
    put(server, "in-queried", range(3))
    command = {"c": "sow_and_subscribe", "cid": "s", "sub_id": "s", "t": "queried"}
    ack = peer.ask(command | {"o": "max_backlog=2", "a": "processed"})
    assert (ack["status"], ack["opts"]) == ("success", "max_backlog=2")
    group = receive_group(peer)
    assert [body for _, body in group.records] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    messages = take(peer, 2)
    assert numbers(messages) == [0, 1]
    assert done(peer, "queried", bm=bookmarks(messages)) == 2
    assert numbers(take(peer, 1)) == [2]


def test_bodies_are_bytes(server: RunningServer, peer: RawPeer) -> None:
    """A queue without expressions takes whatever comes."""
    bodies = [b"", b"\x00\xff no json", b"[1", b'{"n":1}']
    put(server, "in-verbatim", bodies)
    consume(peer, "verbatim")
    messages = take(peer, 4)
    assert [body for _, body in messages] == bodies
    assert done(peer, "verbatim", bm=bookmarks(messages)) == 4


def test_everything_comes_after_a_restart(tmp_path: Path) -> None:
    """What has been acknowledged does not."""
    configuration = elements({"plain": {}})
    with running_server(tmp_path, elements=configuration) as server, server.log_on() as peer:
        put(server, "in-plain", range(4))
        consume(peer, "plain", 2)
        messages = take(peer, 2)
        stored = {"c": "sow_delete", "cid": "d", "t": "plain", "a": "persisted"}
        with server.log_on("other") as other:
            ack = other.ask(stored | {"bm": bookmarks(messages[1:2])})
        assert (ack["a"], ack["status"]) == ("persisted", "success")
    with running_server(tmp_path, elements=configuration) as server, server.log_on() as peer:
        consume(peer, "plain")
        assert numbers(take(peer, 3)) == [0, 2, 3]
