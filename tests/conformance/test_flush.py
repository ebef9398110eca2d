"""flush: acknowledge that all earlier commands of the connection have been processed."""

from __future__ import annotations

from tests.support.server import RunningServer


def test_the_ack_comes_after_the_effects_of_earlier_commands(server: RunningServer) -> None:
    """When the flush is acknowledged, the publishes before it have been delivered."""
    with server.log_on() as peer:
        peer.subscribe("flushed", "1")
        for number in range(100):
            peer.publish("flushed", b"%d" % number)
        peer.send({"c": "flush", "cid": "f", "a": "received,processed,completed,persisted"})
        assert [peer.receive()[1] for _ in range(100)] == [b"%d" % n for n in range(100)]
        acks = [peer.receive_header() for _ in range(4)]
    assert [ack["a"] for ack in acks] == ["received", "processed", "completed", "persisted"]
    assert {(ack["cid"], ack["status"]) for ack in acks} == {("f", "success")}


def test_refused_publishes_are_reported_on_request(server: RunningServer) -> None:
    """Those that asked for no ack, once, in the ack of type completed."""
    ask = {"c": "flush", "cid": "f", "a": "completed"}
    with server.log_on() as peer:
        peer.publish("good", b"1")
        peer.publish("/AMPS/reserved", b"1")
        peer.publish("", b"1")
        assert peer.ask({"c": "publish", "cid": "p", "t": "", "a": "processed"})["reason"]
        assert "reason" not in peer.ask(ask)
        report = peer.ask(ask | {"o": "refusals"})
        assert (report["status"], report["matches"]) == ("success", 2)
        assert report["reason"] == "invalid topic"
        assert peer.ask(ask | {"o": "refusals"}).keys() == {"c", "cid", "a", "status"}


def test_timers_are_acknowledged(server: RunningServer) -> None:
    """Old clients send these commands; they must not lose their connection for it."""
    with server.log_on() as peer:
        for command in ("start_timer", "stop_timer"):
            ack = peer.ask({"c": command, "cid": "t", "a": "processed"})
            assert (ack["cid"], ack["status"]) == ("t", "success")
