"""Queries are carried out in slices: none does more than a small part of what a query comes to."""

from __future__ import annotations

import gc
import json
from itertools import pairwise
from typing import Any

import pytest

from server.storage.views.groups import Group
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

RECORDS = 3000


@pytest.fixture
def core() -> Core:
    """An engine with many records."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    publisher = core.log_on("publisher")
    for start in range(0, RECORDS, 500):
        publisher.send_bytes(
            b"".join(
                frame({"c": "p", "t": "records"}, b'{"id":%d,"v":%d}' % (n, n * 7919 % 10007))
                for n in range(start, start + 500)
            )
        )
    core.clock.advance(0)
    core.clock.work_per_look = 0.001  # from now on, each slice is a turn of its own
    return core


def results_by_turn(core: Core, peer: CorePeer, command: dict[str, Any]) -> list[list[Any]]:
    """What a query gives, turn by turn, until it has been completed."""
    peer.take_frames()
    peer.send({"cid": "q", "sub_id": "s", "t": "records", "bs": 1, "a": "completed", **command})
    turns: list[list[Any]] = []
    for _ in range(1000):
        core.engine.flush()
        frames = peer.take_frames()
        turns.append(
            [
                json.loads(body[body.index(b"}") + 1 :])
                for head, body in frames
                if head["c"] == "sow"
            ]
        )
        if any(head.get("a") == "completed" for head, _ in frames):
            return turns
        core.clock.turn()
    raise AssertionError("the query does not end")


PER_GROUP = "projection=[/v,COUNT(/id) AS /n],grouping=[/v]"


@pytest.mark.parametrize(
    ("command", "turns", "first"),
    [
        pytest.param({"c": "sow"}, RECORDS / 200, 0, id="all"),
        pytest.param({"c": "sow", "orderby": "/v"}, RECORDS / 200, 0, id="ordered"),
        pytest.param(
            {"c": "sow", "orderby": "/v", "skip_n": 2500, "top_n": 400}, 5, 2500, id="far"
        ),
        pytest.param({"c": "sow", "opts": PER_GROUP}, 2 * RECORDS / 100, 0, id="groups"),
        pytest.param(
            {"c": "sow_and_subscribe", "opts": PER_GROUP}, 2 * RECORDS / 100, 0, id="followed"
        ),
        pytest.param(
            {"c": "sow_and_subscribe", "orderby": "/v", "o": "top_n=9,skip_n=1000"},
            RECORDS / 200,
            1000,
            id="page",
        ),
    ],
)
def test_results_are_made_a_few_at_a_time(
    core: Core, command: dict[str, Any], turns: float, first: int
) -> None:
    """However many there are, and whatever has to be done before the first of them."""
    peer = core.log_on("asker")
    found = results_by_turn(core, peer, command)
    assert len(found) >= turns
    assert max(map(len, found)) <= 4 * 200
    values = [one["v"] for some in found for one in some]
    everything = sorted(n * 7919 % 10007 for n in range(RECORDS))
    if "orderby" in command:
        assert values == everything[first : first + len(values)]
        assert values
    else:
        assert sorted(values) == everything


def test_groups_are_let_go_of_a_few_at_a_time(core: Core) -> None:
    """What they take counts no more at once."""
    peer = core.log_on("asker")
    before = peer.held
    results_by_turn(core, peer, {"c": "sow_and_subscribe", "opts": PER_GROUP})
    (session,) = [one for one in core.engine.sessions if one.client_name == "asker"]
    gc.collect()  # those of other tests
    left = [count_groups()]
    session.end_subscription("s")
    assert peer.held == before
    while left[-1]:
        left.append(count_groups())
        core.clock.turn()
        assert len(left) < 100
    assert left[0] == RECORDS
    assert max(before - after for before, after in pairwise(left)) <= 1000


def test_groups_that_keep_many_values_are_made_by_fewer(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group with a list of all its values costs follows their number."""
    monkeypatch.setattr("server.storage.views.group_records._MAX_VALUES", 10)
    listing = "projection=[/v,GROUP_CONCAT(/id) AS /all],grouping=[/v]"
    turns = results_by_turn(core, core.log_on("asker"), {"c": "sow", "opts": listing})
    assert len(turns) >= RECORDS / 10 + RECORDS / 100
    assert sum(map(len, turns)) == RECORDS


def test_what_changes_while_groups_are_made_is_made_good_in_slices(core: Core) -> None:
    """However much it is; what changes meanwhile does not wait."""
    peer, publisher = core.log_on("asker"), core.log_on("editor")
    peer.take_frames()
    peer.send({"c": "sow_and_subscribe", "sub_id": "s", "t": "records", "opts": PER_GROUP})
    core.clock.work_per_look = 0.0  # all that is published now comes before the next turn
    for n in range(RECORDS):
        publisher.send({"c": "p", "t": "records"}, b'{"id":%d,"v":%d}' % (n, 20_000 + n))
    core.clock.work_per_look = 0.001
    assert not any(head["c"] == "p" for head, _ in peer.take_frames())
    told: list[int] = []
    while sum(told) < RECORDS and len(told) < 20_000:
        core.engine.flush()
        told.append(sum(head["c"] == "p" for head, _ in peer.take_frames()))
        core.clock.turn()
    assert sum(told) == RECORDS
    assert len(told) >= 4 * RECORDS / 100  # gathered, made, sent, made good


def count_groups() -> int:
    """How many groups there are in memory."""
    return sum(isinstance(one, Group) for one in gc.get_objects())
