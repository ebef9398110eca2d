"""What conflated subscriptions cost others: slices, counted in turns, and a limit."""

from __future__ import annotations

import pytest

from server.util import limits
from tests.engine.support import Core

MESSAGES = 400


@pytest.mark.parametrize("subscriptions", [1, MESSAGES])
def test_what_falls_due_together_leaves_in_turns(subscriptions: int) -> None:
    """Few at a time, whether one subscription has many keys or a client many subscriptions."""
    core = Core()
    busy, publisher = core.log_on("busy"), core.log_on("publisher")
    for number in range(subscriptions):
        options = "conflation=1s,conflation_key=[/id]"
        busy.send({"c": "subscribe", "t": "t", "sub_id": str(number), "o": options})
    for number in range(MESSAGES // subscriptions):
        publisher.send({"c": "publish", "t": "t"}, b'{"id": %d}' % number)
    busy.take_frames()
    core.clock.advance(0.9)
    core.clock.work_per_look = 0.000_5  # a turn is over after some looks at the clock
    core.clock.time += 0.2
    received, turns = 0, 0
    while received < MESSAGES:
        core.clock.turn()
        core.engine.flush()
        some = len(busy.take_frames())
        assert some <= 64
        received += some
        turns += 1
        assert turns < 10 * MESSAGES
    assert turns > MESSAGES / 64
    assert received == MESSAGES


def test_a_message_takes_the_place_of_one_that_is_about_to_leave() -> None:
    """And what comes after it has left waits for an interval of its own."""
    core = Core()
    busy, publisher = core.log_on("busy"), core.log_on("publisher")
    options = "conflation=1s,conflation_key=[/id]"
    busy.send({"c": "subscribe", "t": "t", "sub_id": "1", "o": options})
    publisher.send({"c": "publish", "t": "t"}, b'{"id": 1, "n": 1}')
    busy.take_frames()
    core.clock.time += 1
    core.clock.turn()  # it falls due
    publisher.send({"c": "publish", "t": "t"}, b'{"id": 1, "n": 2}')
    core.clock.advance(0)
    assert [body for _, body in busy.take_frames()] == [b'{"id": 1, "n": 2}']
    publisher.send({"c": "publish", "t": "t"}, b'{"id": 1, "n": 3}')
    core.clock.advance(0.9)
    assert not busy.take_frames()
    core.clock.advance(0.1)
    assert [body for _, body in busy.take_frames()] == [b'{"id": 1, "n": 3}']


def test_a_connection_may_have_so_many_conflated_subscriptions() -> None:
    """One more is refused; others, and replacements, are not."""
    core = Core()
    peer = core.log_on()
    peer.take_frames()

    def status(sub_id: int, options: str) -> object:
        header = {"c": "subscribe", "t": "t", "sub_id": str(sub_id), "a": "processed"}
        peer.send(header | {"o": options})
        ((ack, _),) = peer.take_frames()
        return ack["status"]

    conflated = "conflation=1s,conflation_key=[/id]"
    most = limits.MAX_CONFLATED_SUBSCRIPTIONS
    answers = [status(number, conflated) for number in range(most + 1)]
    assert answers == ["success"] * most + ["failure"]
    assert status(most, "") == "success"
    assert status(1, f"replace,{conflated}") == "success"
