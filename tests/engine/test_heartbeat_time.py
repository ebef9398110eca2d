"""Heartbeats over long times, in simulated time."""

from __future__ import annotations

import pytest

from tests.engine.support import Core

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


@pytest.mark.parametrize("interval", [1, 2, 5, 30])
def test_a_client_that_answers_every_second_beat(interval: int) -> None:
    """Some answer only if more whole seconds than an interval have passed since their last beat."""
    core = Core()
    core.clock.time += 0.001
    core.clock.lateness = 0.0001  # as timers are
    peer = core.log_on()
    peer.send({"c": "heartbeat", "o": f"start,{interval}"})
    answered, answers = int(core.clock.time), 0
    for _ in range(1000):
        core.clock.advance(interval + core.clock.lateness)
        if peer.take_frames() and int(core.clock.time) - answered > interval:
            answered = int(core.clock.time)
            answers += 1
            peer.send({"c": "heartbeat", "o": "beat"})
    assert not peer.hung_up
    assert 450 < answers < 550


def test_heartbeats_stop_when_asked_to() -> None:
    """Neither side has to beat any more; started again, they come again."""
    core = Core()
    peer = core.log_on()
    for key in ("o", "opts"):
        peer.send({"c": "heartbeat", "o": "start,5"})
        core.clock.advance(5)
        assert [header for header, _ in peer.take_frames()] == [{"c": "heartbeat"}]
        peer.send({"c": "heartbeat", key: "stop"})
        core.clock.advance(DAY)
        assert not peer.take_frames()
    assert not peer.hung_up
    assert not any(message_id == "02-0001" for message_id, _ in core.log.entries)


@pytest.mark.parametrize(
    ("interval", "keys", "patience"),
    [
        (10, {}, 25),
        (1, {}, 3),
        (10, {"grace_period": 60_000}, 70),
        (10, {"grace_period": 1}, 25),
    ],
)
def test_silence_is_noticed_after_a_grace_period(
    interval: int, keys: dict[str, int], patience: float
) -> None:
    """A missed beat is forgiven; then the client is disconnected, and no timer is left."""
    core = Core()
    peer = core.log_on()
    peer.send({"c": "heartbeat", "o": f"start,{interval}"} | keys)
    core.clock.advance(patience - 0.01)
    assert not peer.hung_up
    core.clock.advance(0.02)
    assert peer.hung_up
    assert ("07-0013", {"client": "tester", "reason": "heartbeat"}) in core.log.entries
    entries = len(core.log.entries)
    core.clock.advance(DAY)
    assert len(core.log.entries) == entries
