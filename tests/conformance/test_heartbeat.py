"""heartbeat: both sides show that they are alive, and a silent client is disconnected."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer


def test_the_server_beats_and_disconnects_a_client_that_falls_silent(
    server: RunningServer,
) -> None:
    """Once started, heartbeats come; answered by nothing, the connection is closed."""
    with server.log_on("silent") as peer:
        peer.send({"c": "heartbeat", "cid": "h", "o": "start,0.1", "a": "processed"})
        assert peer.receive_header()["status"] == "success"
        assert [peer.receive_header() for _ in range(3)] == [{"c": "heartbeat"}] * 3
        assert peer.is_disconnected()
    assert server.logs("unresponsive client: silent")
    assert server.logs("client[silent] disconnected. Reason: heartbeat")


def test_a_client_that_beats_stays(server: RunningServer) -> None:
    """Answered heartbeats go on, for longer than silence is borne: two intervals and a second."""
    with server.log_on("lively") as peer:
        peer.send({"c": "heartbeat", "o": "start,0.5"})
        for _ in range(6):
            assert peer.receive_header() == {"c": "heartbeat"}
            peer.send({"c": "heartbeat", "o": "beat"})


@pytest.mark.parametrize("options", ["start", "start,x", "start,-1", "start,nan", "halt"])
def test_options_that_make_no_sense_are_refused(server: RunningServer, options: str) -> None:
    """The interval is a number of seconds."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "heartbeat", "cid": "h", "o": options, "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "invalid option")


def test_a_goodbye_is_no_mistake(server: RunningServer) -> None:
    """Clients stop their heartbeats before they leave, logged on or not: the log has no error."""
    for key in ("o", "opts"):
        with server.connect() as early, server.log_on(f"leaving-{key}") as peer:
            for one in (early, peer):
                ack = one.ask({"c": "heartbeat", "cid": "h", key: "stop", "a": "processed"})
                assert ack["status"] == "success"
            assert early.log_on(f"late-{key}")["status"] == "success"
        assert server.logs(f"client[leaving-{key}] disconnected")
    assert "'stop'" not in server.log()
    assert "auth failure" not in server.log()
