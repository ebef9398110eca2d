"""The sow commands on topics that keep no records."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer


@pytest.mark.parametrize("command", ["sow", "sow_delete"])
def test_a_query_or_delete_is_refused(server: RunningServer, command: str) -> None:
    """There is nothing that it could be about."""
    with server.log_on() as peer:
        ack = peer.ask({"c": command, "cid": "1", "t": "adhoc", "f": "1=1", "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")
        assert "of message type json keeps no records" in ack["detail"]


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_a_query_with_subscription_gives_an_empty_group_and_then_messages(
    server: RunningServer, command: str
) -> None:
    """The subscription half works as ever."""
    with server.log_on() as peer:
        wanted = "processed,completed,stats"
        peer.send({"c": command, "cid": "7", "sub_id": "s", "t": "adhoc", "a": wanted})
        frames = [peer.receive_header() for _ in range(5)]
        assert [frame.get("a", frame["c"]) for frame in frames] == [
            "processed",
            "group_begin",
            "group_end",
            "completed",
            "stats",
        ]
        assert {frame["query_id"] for frame in frames} == {"7"}
        stats = {key: frames[4][key] for key in ("matches", "topic_matches", "records_returned")}
        assert set(stats.values()) == {0}
        peer.publish("adhoc", b"{}")
        assert peer.receive()[0]["sids"] == "s"
