"""unsubscribe: no more messages for some or all subscriptions of a connection."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer


@pytest.mark.parametrize(
    ("ids", "left"), [("1", ["2", "3"]), ("1,3", ["2"]), ("all", []), ("9", ["1", "2", "3"])]
)
def test_messages_stop_for_the_subscriptions_named(
    server: RunningServer, ids: str, left: list[str]
) -> None:
    """One id, a list of them or all; an id that is not there is not an error."""
    with server.log_on() as peer:
        for sub_id in ("1", "2"):
            peer.subscribe("unsubscribe", sub_id)
        peer.subscribe("^unsubscribe$", "3")
        ack = peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": ids, "a": "processed"})
        assert (ack["status"], ack["cid"]) == ("success", "u")
        peer.publish("unsubscribe", b"{}")
        if left:
            assert peer.receive()[0]["sids"].split(",") == left
        assert peer.hears_nothing()


def test_an_unsubscribe_has_to_say_from_what(server: RunningServer) -> None:
    """Neither subscriptions nor queries named: refused."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "unsubscribe", "cid": "u", "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "invalid subscription id")


def test_disconnecting_ends_subscriptions(server: RunningServer) -> None:
    """A publisher is not disturbed by subscribers that have gone."""
    with server.log_on("publisher") as publisher:
        for _ in range(3):
            with server.log_on("fleeting") as subscriber:
                subscriber.subscribe("fleeting", "1")
        with server.log_on("steady") as steady:
            steady.subscribe("fleeting", "1")
            publisher.publish("fleeting", b"{}")
            assert steady.receive()[1] == b"{}"
