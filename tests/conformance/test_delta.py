"""delta_publish and delta subscriptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, query, receive_group

server = module_server(TOPICS)


def publish(peer: RawPeer, message: dict[str, Any], **keys: Any) -> None:
    """Publish an order."""
    peer.publish("orders", json.dumps(message).encode(), **keys)


def delta_publish(peer: RawPeer, message: dict[str, Any], **keys: Any) -> None:
    """Publish a delta of an order."""
    publish(peer, message, c="delta_publish", **keys)


def order(peer: RawPeer, number: int) -> tuple[dict[str, Any], Any]:
    """A record as a query gives it."""
    ((header, body),) = query(peer, "orders", f=f"/id = {number}", o="timestamp").records
    return header, json.loads(body)


def follow(peer: RawPeer, sub_id: str, filter_: str, options: str = "") -> dict[str, Any]:
    """Place a delta subscription on orders, and give the ack."""
    return peer.subscribe("orders", sub_id, c="delta_subscribe", f=filter_, o=options)


def received(peer: RawPeer) -> tuple[str, Any]:
    """What comes next: subscription ids and body."""
    header, body = peer.receive()
    assert header["c"] == "p"
    return header["sids"], json.loads(body)


def test_a_delta_changes_the_fields_that_it_has(server: RunningServer) -> None:
    """Fields that it lacks, or has as NULL, stay; parts are merged, arrays replaced."""
    with server.log_on() as peer:
        whole = {"id": 1, "a": 1, "b": {"x": 1, "y": 1}, "c": [1, 2], "d": "text"}
        delta_publish(peer, whole)
        delta_publish(peer, {"id": 1, "a": 2, "b": {"x": 2}, "c": [3], "d": None, "new": 1})
        _, merged = order(peer, 1)
    assert merged == {"id": 1, "a": 2, "b": {"x": 2, "y": 1}, "c": [3], "d": "text", "new": 1}


SLOPPY = [
    b'"t":"a\nb"',
    b'"t":"a\tb"',
    b'"t":NaN',
    b'"t":-Infinity',
    b'"t":"\xe9"',
    b'"t":"\\ud800"',
    b'"t":{"u":"a\nb"}',
    b'"t":["a\nb",NaN]',
    b'"t":1,',
    b'"t":1,"t":2',
]
"""Members of objects that filters read, though JSON does not have them."""


@pytest.mark.parametrize("member", SLOPPY)
def test_what_filters_read_is_merged(server: RunningServer, member: bytes) -> None:
    """Values of the record, and of the delta, stay as they are."""
    kept = b'"t":1' if member.startswith(b'"t":1') else member
    with server.log_on() as peer:
        for stored, delta in ((member, b'"y":2'), (b'"y":2', member)):
            peer.publish("orders", b'{"id":5,' + stored + b"}")
            header = {"c": "delta_publish", "cid": "1", "t": "orders", "a": "processed"}
            ack = peer.ask(header, b'{"id":5,' + delta + b"}")
            assert ack["status"] == "success", ack
            (body,) = query(peer, "orders", f="/id = 5 AND /y = 2").bodies
            assert body in (b'{"id":5,%b,"y":2}' % kept, b'{"id":5,"y":2,%b}' % kept)


def test_a_record_that_cannot_be_merged_with(server: RunningServer) -> None:
    """The publisher is told whether the record or the delta is at fault."""
    with server.log_on() as peer:
        header = {"c": "delta_publish", "cid": "1", "t": "orders", "a": "processed"}
        for stored, delta, problem in (
            (b'{"id":6,"t":[1,2', b'{"id":6,"y":2}', "the record that is stored with this key"),
            (b'{"id":6}', b'{"id":6,"y":[2', "JSON: "),
        ):
            peer.publish("orders", stored)
            ack = peer.ask(header, delta)
            assert (ack["status"], ack["reason"]) == ("failure", "invalid message")
            assert problem in ack["detail"]
            assert query(peer, "orders", f="/id = 6").bodies == [stored]


def test_subscribers_get_the_merged_record(server: RunningServer) -> None:
    """Filters are decided on it, too."""
    with server.log_on() as peer:
        publish(peer, {"id": 2, "a": 1, "b": 1})
        peer.subscribe("orders", "s", f="/id = 2 AND /b = 1")
        delta_publish(peer, {"id": 2, "a": 2})
        assert received(peer) == ("s", {"id": 2, "a": 2, "b": 1})


def test_a_delta_without_correlation_id_keeps_that_of_the_record(server: RunningServer) -> None:
    """One with a correlation id sets it."""
    with server.log_on() as peer:
        publish(peer, {"id": 3, "a": 1}, x="first")
        peer.subscribe("orders", "s", f="/id = 3")
        delta_publish(peer, {"id": 3, "a": 2})
        assert peer.receive()[0]["x"] == "first"
        delta_publish(peer, {"id": 3, "a": 2}, x="second")
        assert peer.receive()[0]["x"] == "second"
        assert order(peer, 3)[0]["x"] == "second"


def test_a_delta_on_a_type_without_deltas_is_a_publish(server: RunningServer) -> None:
    """The literal message takes the record's place."""
    with server.log_on(message_type="binary") as peer:
        for body in (b"one", b"two"):
            peer.publish("blobs", body, c="delta_publish", k="key")
        assert query(peer, "blobs").bodies == [b"two"]


def test_a_delta_subscriber_gets_key_and_changed_fields(server: RunningServer) -> None:
    """A new record comes whole; it does not matter how the change was published."""
    with server.log_on() as peer:
        follow(peer, "s", "/id = 4")
        publish(peer, {"id": 4, "a": 1, "b": 1})
        assert received(peer) == ("s", {"id": 4, "a": 1, "b": 1})
        publish(peer, {"id": 4, "a": 2, "b": 1})
        assert received(peer) == ("s", {"id": 4, "a": 2})
        delta_publish(peer, {"id": 4, "b": 5})
        header, body = peer.receive()
        assert json.loads(body) == {"id": 4, "b": 5}
        assert (header["k"], header["l"]) == (order(peer, 4)[0]["k"], len(body))


def test_an_update_that_changes_nothing(server: RunningServer) -> None:
    """It is sent with the key fields alone, or not at all to those who want no empties."""
    with server.log_on() as peer:
        publish(peer, {"id": 5, "a": 1})
        follow(peer, "some", "/id = 5")
        follow(peer, "none", "/id = 5", "no_empties")
        publish(peer, {"id": 5, "a": 1})
        assert received(peer) == ("some", {"id": 5})
        publish(peer, {"id": 5, "a": 2})
        assert received(peer) == ("some,none", {"id": 5, "a": 2})


def test_only_selected_fields_count_as_changes(server: RunningServer) -> None:
    """With a select list and no_empties, a change elsewhere is no message."""
    with server.log_on() as peer:
        publish(peer, {"id": 6, "a": 1, "b": 1})
        follow(peer, "s", "/id = 6", "no_empties,select=[-/,+/id,+/a]")
        publish(peer, {"id": 6, "a": 1, "b": 2})
        publish(peer, {"id": 6, "a": 2, "b": 2})
        assert received(peer) == ("s", {"id": 6, "a": 2})


def test_full_and_delta_subscriptions_of_one_connection(server: RunningServer) -> None:
    """One message for both, whole."""
    with server.log_on() as peer, server.log_on("other") as other:
        publish(peer, {"id": 7, "a": 1, "b": 1})
        follow(peer, "delta", "/id = 7")
        follow(other, "delta", "/id = 7")
        peer.subscribe("orders", "full", f="/id = 7")
        publish(peer, {"id": 7, "a": 2, "b": 1})
        assert received(peer) == ("delta,full", {"id": 7, "a": 2, "b": 1})
        assert received(other) == ("delta", {"id": 7, "a": 2})


def test_a_record_that_returns_into_focus_comes_whole(server: RunningServer) -> None:
    """If the subscription tracks focus."""
    with server.log_on() as peer:
        follow(peer, "s", "/id = 8 AND /open = 1", "oof")
        publish(peer, {"id": 8, "open": 1, "a": 1})
        publish(peer, {"id": 8, "open": 0, "a": 1})
        publish(peer, {"id": 8, "open": 1, "a": 1})
        publish(peer, {"id": 8, "open": 1, "a": 2})
        got = [(header["c"], json.loads(body)) for header, body in (peer.receive() for _ in "1234")]
    assert got == [
        ("p", {"id": 8, "open": 1, "a": 1}),
        ("oof", {"id": 8, "open": 0, "a": 1}),
        ("p", {"id": 8, "open": 1, "a": 1}),
        ("p", {"id": 8, "a": 2}),
    ]


def test_sow_and_delta_subscribe(server: RunningServer) -> None:
    """Whole records from the query, then what changes."""
    with server.log_on() as peer:
        publish(peer, {"id": 9, "a": 1, "b": 1})
        peer.send({"c": "sow_and_delta_subscribe", "cid": "s", "t": "orders", "f": "/id = 9"})
        assert receive_group(peer).messages == [{"id": 9, "a": 1, "b": 1}]
        publish(peer, {"id": 9, "a": 1, "b": 2})
        assert received(peer) == ("s", {"id": 9, "b": 2})


def test_deltas_of_one_interval_are_merged(server: RunningServer) -> None:
    """The example of the reference: fields that changed and changed back are sent."""
    with server.log_on() as peer:
        record = {"id": 99, "status": "open", "notes": "none", "xref": 82}
        publish(peer, record)
        follow(peer, "s", "/id = 99", "conflation=200ms")
        with peer.at_once():
            for status, notes in (
                ("questioned", "none"),
                ("questioned", "jcarlo hold"),
                ("cleared", "none"),
                ("open", "none"),
            ):
                publish(peer, record | {"status": status, "notes": notes})
        assert received(peer) == ("s", {"id": 99, "status": "open", "notes": "none"})
        assert peer.hears_nothing()


def test_a_delta_that_changes_nothing_is_an_update(server: RunningServer) -> None:
    """Subscribers of whole records are sent it, and so are delta subscribers without no_empties."""
    with server.log_on() as peer, server.log_on("other") as other:
        publish(peer, {"id": 30, "a": 1})
        peer.subscribe("orders", "s", f="/id = 30")
        other.subscribe("orders", "s", c="delta_subscribe", f="/id = 30")
        delta_publish(peer, {"id": 30, "a": 1})
        assert received(peer) == ("s", {"id": 30, "a": 1})
        assert received(other) == ("s", {"id": 30})


def test_a_topic_without_records_has_no_deltas(server: RunningServer) -> None:
    """Delta subscribers get whole messages, conflated or not."""
    with server.log_on() as peer:
        peer.subscribe("unkept", "s", c="delta_subscribe", o="no_empties,send_keys")
        options = "conflation=100ms,conflation_key=[/id]"
        peer.subscribe("unkept", "slow", c="delta_subscribe", o=options)
        for _ in range(2):
            peer.publish("unkept", b'{"id":1,"a":1}')
            assert received(peer) == ("s", {"id": 1, "a": 1})
        assert received(peer) == ("slow", {"id": 1, "a": 1})


def test_a_type_without_deltas_has_whole_messages(server: RunningServer) -> None:
    """The subscription is accepted."""
    with server.log_on(message_type="binary") as peer:
        peer.subscribe("blobs", "s", c="delta_subscribe", o="no_empties")
        for body in (b"one", b"one"):
            peer.publish("blobs", body, k="same")
            assert peer.receive()[1] == body


def test_conflated_deltas_begin_with_what_the_client_has(server: RunningServer) -> None:
    """A new record is whole although deltas follow it; one that comes back into focus, too."""
    with server.log_on() as peer:
        follow(peer, "s", "/id = 31 AND /a < 5", "conflation=150ms,oof,no_empties")
        publish(peer, {"id": 31, "a": 1, "b": 1})
        publish(peer, {"id": 31, "a": 1, "b": 2})
        assert received(peer) == ("s", {"id": 31, "a": 1, "b": 2})
        publish(peer, {"id": 31, "a": 9, "b": 2})
        publish(peer, {"id": 31, "a": 2, "b": 2})
        assert received(peer) == ("s", {"id": 31, "a": 2, "b": 2})
        publish(peer, {"id": 31, "a": 2, "b": 2})
        publish(peer, {"id": 31, "a": 3, "b": 2})
        assert received(peer) == ("s", {"id": 31, "a": 3})
        assert peer.hears_nothing()


def test_fix_deltas_begin_with_the_delta(server: RunningServer) -> None:
    """As measured: the delta's fields in its order, then those that it lacks."""
    with server.log_on(message_type="fix") as peer:
        peer.publish("fixed", b"35=D\x0137=1\x0138=100\x0144=5\x01")
        peer.publish("fixed", b"35=G\x0137=1\x0138=200\x01", c="delta_publish")
        assert query(peer, "fixed").bodies == [b"35=G\x0137=1\x0138=200\x0144=5\x01"]


def test_a_replay_sends_no_deltas(server: RunningServer) -> None:
    """A delta subscription with a bookmark is refused."""
    with server.log_on() as peer:
        ack = peer.subscribe("orders", "s", c="delta_subscribe", bm="0")
    assert (ack["status"], ack["reason"]) == ("failure", "invalid command")
