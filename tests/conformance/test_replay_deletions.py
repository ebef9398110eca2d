"""subscribe with a bookmark and the option deletions: what the log says of records that went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.entitled import entitled_server
from tests.support.raw import RawPeer
from tests.support.server import RunningServer

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability><Expiration>1h</Expiration>
  </Topic>
  <Topic>
    <Name>past</Name><MessageType>json</MessageType><Key>/id</Key><FileName>past.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(orders|past)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
DOCUMENTS = {
    "root": {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]},
    "ann": {"logon": True, "topic": [{"topic": "orders", "read": "/id < 5"}]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Records that were published, deleted in two ways, and published again."""
    with entitled_server(
        tmp_path_factory.mktemp("deletions"), DOCUMENTS, elements=TOPICS
    ) as running:
        with running.log_on("publisher", user_id="root") as peer:
            for number in range(3):
                peer.publish("orders", b'{"id":%d}' % number, s=number + 1)
            peer.publish("orders", b'{"id":3}', s=4, e=20)
            peer.send({"c": "sow_delete", "t": "orders", "filter": "/id < 2", "s": 5})
            peer.send({"c": "sow_delete", "t": "orders", "s": 6}, b'{"id":3}')
            peer.publish("orders", b'{"id":0,"again":true}', s=7, e=0)
            peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        yield running


def replayed(peer: RawPeer, bookmark: str = "0", **keys: Any) -> list[tuple[dict[str, Any], bytes]]:
    """What a replay of everything up to now sends."""
    peer.send(
        {"c": "subscribe", "cid": "r", "sub_id": "r", "t": "orders", "bm": bookmark}
        | {"o": "deletions", "a": "completed"}
        | keys
    )
    found = []
    while (message := peer.receive())[0]["c"] != "ack":
        found.append(message)
    return found


def told(messages: list[tuple[dict[str, Any], bytes]]) -> list[tuple[str, int | None, bytes]]:
    return [(header["c"], header.get("e"), body) for header, body in messages]


def test_deletions_have_their_place_in_the_log(server: RunningServer) -> None:
    """Each is one message with the keys that it removed; lifetimes may be the topic's."""
    with server.log_on("reader", user_id="root") as peer:
        messages = replayed(peer)
        keys = {json.loads(body)["id"]: header["k"] for header, body in messages if "k" in header}
        removed = [json.loads(body) for header, body in messages if header["c"] == "oof"]
        assert [sorted(some) for some in removed] == [sorted((keys[0], keys[1])), [keys[3]]]
        assert all(
            (header["reason"], header["t"], header["sids"]) == ("deleted", "orders", "r")
            for header, _ in messages
            if header["c"] == "oof"
        )
        assert [(kind, seconds) for kind, seconds, _ in told(messages)] == [
            *[("p", 3600)] * 3,
            ("p", 20),
            *[("oof", None)] * 2,
            ("p", None),
        ]
        assert [header["bm"].split("|")[1] for header, _ in messages] == list("1234567")


def test_a_replay_goes_on_behind_a_deletion(server: RunningServer) -> None:
    """Its bookmark is one like any other; a replay that has caught up is told of others, too."""
    with (
        server.log_on("reader", user_id="root") as peer,
        server.log_on("other", user_id="root") as other,
    ):
        bookmark = replayed(peer)[4][0]["bm"]
        peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "r", "a": "processed"})
        rest = replayed(peer, bookmark)
        assert [kind for kind, _, _ in told(rest)] == ["oof", "p"]
        other.publish("orders", b'{"id":9}')
        assert peer.receive()[1] == b'{"id":9}'
        other.send({"c": "sow_delete", "t": "orders", "filter": "/id = 9"})
        header, body = peer.receive()
        assert (header["c"], len(json.loads(body))) == ("oof", 1)


def test_deletions_are_counted(server: RunningServer) -> None:
    """As messages, in the number and the bytes; without the option they are not."""
    with server.log_on("reader", user_id="root") as peer:
        messages = replayed(peer, f"[0:{replayed(peer)[6][0]['bm']}]", sub_id="s")
        ask = {"c": "subscribe", "cid": "c", "t": "orders", "a": "completed"}
        span = f"[0:{messages[-1][0]['bm']}]"
        peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "all", "a": "processed"})
        ack = peer.ask(ask | {"bm": span, "o": "count,deletions"})
        assert ack["matches"] == len(messages)
        assert f"bytes={sum(len(body) for _, body in messages)}" in ack["opts"]
        assert peer.ask(ask | {"bm": span, "o": "count"})["matches"] == len(messages) - 2


def test_replays_without_the_option_have_none(server: RunningServer) -> None:
    """Nor lifetimes: they are as they were."""
    with server.log_on("reader", user_id="root") as peer:
        messages = replayed(peer, o="timestamp")
        assert {header["c"] for header, _ in messages} == {"p"}
        assert not any("e" in header for header, _ in messages)


@pytest.mark.parametrize(
    ("keys", "user", "problem"),
    [
        ({"filter": "/id = 1"}, "root", "it does not go with a filter"),
        ({"o": "deletions,live"}, "root", "it does not go with option live"),
        ({"o": "deletions,conflation=1s"}, "root", "it does not go with option conflation"),
        ({"o": "deletions,select=[-/,+/id]"}, "root", "it does not go with option select"),
        ({"c": "sow_and_subscribe"}, "root", "only subscriptions that replay from"),
        ({"c": "sow_and_subscribe", "t": "past"}, "root", "replays that begin without a query"),
        ({"bm": None}, "root", "only subscriptions that replay from a transaction log"),
        ({}, "ann", "users who may read all messages of the topic"),
        ({"o": "deletions,count"}, "ann", "users who may read all messages of the topic"),
    ],
)
def test_what_deletions_do_not_go_with(
    server: RunningServer, keys: dict[str, Any], user: str, problem: str
) -> None:
    """It is refused, with the reason."""
    command = {"c": "subscribe", "cid": "r", "t": "orders", "bm": "0", "o": "deletions"}
    given = {name: value for name, value in (command | keys).items() if value is not None}
    with server.log_on("reader", user_id=user) as peer:
        answer = peer.ask(given | {"a": "processed"})
    assert (answer["status"], answer["reason"]) == ("failure", "invalid option")
    assert "deletions" in answer["detail"]
    assert problem in answer["detail"]
