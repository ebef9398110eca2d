"""Heartbeats over long times, in simulated time."""

from __future__ import annotations

from tests.core.support import Core

DAY = 24 * 60 * 60


def test_a_day_of_answered_heartbeats() -> None:
    """Neither side misses a beat in 24 hours, and nothing piles up."""
    core = Core()
    peer = core.log_on()
    peer.send({"c": "heartbeat", "o": "start,5"})
    beats = 0
    for _ in range(DAY // 5):
        core.clock.advance(5)
        frames = peer.take_frames()
        assert [header for header, _ in frames] == [{"c": "heartbeat"}]
        beats += len(frames)
        peer.send({"c": "heartbeat", "o": "beat"})
    assert beats == DAY // 5
    assert not peer.hung_up


def test_any_traffic_counts_as_a_sign_of_life() -> None:
    """A client that publishes need not beat as well."""
    core = Core()
    peer = core.log_on()
    peer.send({"c": "heartbeat", "o": "start,10"})
    for _ in range(100):
        core.clock.advance(9)
        peer.send({"c": "publish", "t": "t"}, b"{}")
    assert not peer.hung_up


def test_silence_is_noticed_within_three_intervals() -> None:
    """One missed beat is forgiven; then the client is disconnected, and no timer is left."""
    core = Core()
    peer = core.log_on()
    peer.send({"c": "heartbeat", "o": "start,10"})
    core.clock.advance(19)
    assert not peer.hung_up
    core.clock.advance(11)
    assert peer.hung_up
    assert ("07-0013", {"client": "tester", "reason": "heartbeat"}) in core.log.entries
    entries = len(core.log.entries)
    core.clock.advance(DAY)
    assert len(core.log.entries) == entries
