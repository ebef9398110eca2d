"""Header keys of subscriptions that stand for options, and what cannot be honoured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, receive_group

FOLLOWING = ("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe")
QUERYING = FOLLOWING[2:]


server = module_server(TOPICS)


def ask(peer: RawPeer, command: str, **keys: Any) -> dict[str, Any]:
    """Send a subscription of orders, pass over what a query gives, and give the ack."""
    header = {"c": command, "cid": "s", "sub_id": "s", "t": "orders", "a": "processed"}
    ack = peer.ask(header | keys)
    if command in QUERYING and ack["status"] == "success":
        receive_group(peer)
    return ack


@pytest.mark.parametrize("value", [True, "true", 1])
@pytest.mark.parametrize("command", FOLLOWING)
def test_send_oof_is_the_option_oof(server: RunningServer, command: str, value: object) -> None:
    """Without it a record leaves in silence."""
    with server.log_on() as peer, server.log_on("other") as other:
        record = f"{command}-{value}"
        for one, asked in ((peer, value), (other, False)):
            assert ask(one, command, f=f"/id = '{record}'", send_oof=asked)["status"] == "success"
        peer.publish("orders", json.dumps({"id": record}).encode())
        peer.send({"c": "sow_delete", "t": "orders", "f": f"/id = '{record}'"})
        assert [peer.receive()[0]["c"] for _ in range(2)] == ["p", "oof"]
        assert other.receive()[0]["c"] == "p"
        assert other.hears_nothing()


@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_delta_subscribe"])
def test_send_empty_is_the_opposite_of_no_empties(server: RunningServer, command: str) -> None:
    """Updates that change nothing are sent unless it is false."""
    with server.log_on() as peer, server.log_on("other") as other:
        peer.publish("orders", b'{"id":"e","n":1}')
        for one, value in ((peer, False), (other, True)):
            assert ask(one, command, f="/id = 'e'", send_empty=value)["status"] == "success"
        peer.publish("orders", b'{"id":"e","n":1}')
        peer.publish("orders", b'{"id":"e","n":2}')
        assert json.loads(peer.receive()[1]) == {"id": "e", "n": 2}
        assert json.loads(other.receive()[1]) == {"id": "e"}
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 'e'"})


@pytest.mark.parametrize("command", FOLLOWING)
@pytest.mark.parametrize("value", [True, False])
def test_send_keys_asks_for_what_is_always_there(
    server: RunningServer, command: str, value: bool
) -> None:
    """The key fields, and the SOW key in the header."""
    with server.log_on() as peer:
        peer.publish("orders", b'{"id":"k","n":1}')
        assert ask(peer, command, f="/id = 'k'", send_keys=value, o="none")["status"] == "success"
        peer.publish("orders", b'{"id":"k","n":2}')
        header, body = peer.receive()
        assert "k" in header
        assert json.loads(body)["id"] == "k"


@pytest.mark.parametrize("topic", ["orders", "no-records"])
@pytest.mark.parametrize("command", FOLLOWING)
def test_messages_without_the_ids_of_subscriptions(
    server: RunningServer, command: str, topic: str
) -> None:
    """A subscriber that has one subscription may do without; its others have their ids."""
    with server.log_on() as peer, server.log_on("other") as other:
        without = {"t": topic, "send_matching_ids": False, "o": "none"}
        assert ask(peer, command, **without)["status"] == "success"
        peer.subscribe(topic, "with")
        other.publish(topic, b'{"id":"ids"}')
        other.publish(topic, b'{"id":"ids","n":1}')
        headers = [peer.receive()[0] for _ in range(4)]
    assert sorted(header.get("sids", "") for header in headers) == ["", "", "with", "with"]
    assert all(header["t"] == topic for header in headers)


@pytest.mark.parametrize(
    "keys", [{"data_only": False}, {"data_only": True}, {"send_matching_ids": True}]
)
@pytest.mark.parametrize("command", FOLLOWING)
def test_what_is_the_case_anyway_is_accepted(
    server: RunningServer, command: str, keys: dict[str, Any]
) -> None:
    """Clients that always send these keys are not turned away."""
    with server.log_on() as peer:
        assert ask(peer, command, f="/id = '-'", **keys)["status"] == "success"


def test_a_key_that_is_neither_true_nor_false(server: RunningServer) -> None:
    """The command is refused, and the connection goes on."""
    with server.log_on() as peer:
        ack = ask(peer, "subscribe", send_oof="perhaps")
        assert (ack["status"], ack["reason"]) == ("failure", "bad header")
        assert "send_oof" in ack["detail"]
        peer.flush()


def test_send_oof_needs_records(server: RunningServer) -> None:
    """As the option does."""
    with server.log_on() as peer:
        ack = ask(peer, "subscribe", t="unkept", send_oof=True)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid option")


@pytest.mark.parametrize("command", FOLLOWING)
@pytest.mark.parametrize("filter_", ["UNIX_TIMESTAMP() > 5", "LAST_READ() > 5"])
def test_a_filter_that_changes_its_mind_cannot_track_focus(
    server: RunningServer, command: str, filter_: str
) -> None:
    """Functions that give another answer each time are refused with oof, and only then."""
    with server.log_on() as peer:
        ack = ask(peer, command, f=filter_, o="oof")
        assert (ack["status"], ack["reason"]) == ("failure", "bad filter")
        assert ask(peer, command, f=filter_)["status"] == "success"


def test_the_stats_of_a_delta_subscription(server: RunningServer) -> None:
    """It queries nothing, and says so."""
    with server.log_on() as peer:
        ack = ask(peer, "delta_subscribe", a="stats")
        assert (ack["a"], ack["status"], ack["sub_id"]) == ("stats", "success", "s")
        assert [ack[key] for key in ("matches", "topic_matches", "records_returned")] == [0, 0, 0]
