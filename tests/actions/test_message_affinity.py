"""Records that are shared by clients: each has one, and the work is even."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.message_affinity import AffinityAssignment, MessageAffinities
from tests.actions.support import Bench, echo, put, with_records
from tests.engine.support import CorePeer

AFFINITY: dict[str, str | list[str]] = {
    "MessageType": "json",
    "ControlTopic": "control",
    "DataTopic": "orders",
    "DataFilter": "/s = 'open'",
}
SAY = echo("{{AMPS_AFFINITY_ACTION}} {{AMPS_CLIENT_NAME}} {{AMPS_DATA}} {{AMPS_AFFINITY_REASON}}")


def sharing() -> tuple[Bench, CorePeer]:
    """A bench whose first two orders are open when the action begins."""
    bench, peer = with_records()
    put(peer, 1, "open")
    put(peer, 2, "open")
    put(peer, 3, "closed")
    bench.add(("amps-action-on-message-affinity", AFFINITY), SAY)
    return bench, peer


def worker(bench: Bench, name: str, topic: str = "control") -> CorePeer:
    """A client that shares the work."""
    peer = bench.core.log_on(name)
    peer.send({"c": "subscribe", "t": topic, "sub_id": "1"})
    return peer


def order(key: int, state: str = "open") -> str:
    """The body of an order."""
    return f'{{"id":{key},"s":"{state}"}}'


def test_records_are_shared() -> None:
    bench, peer = sharing()

    def live() -> None:
        first = worker(bench, "one")  # gets all that there is
        put(peer, 4, "open")
        worker(bench, "two", "^cont")  # gets nothing of that
        put(peer, 5, "open")
        put(peer, 5, "open")
        put(peer, 1, "closed")
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 5"})
        worker(bench, "somebody else", "data")
        first.send({"c": "unsubscribe", "sub_id": "1"})

    bench.run(live)
    assert bench.echoes() == [
        f"assign one {order(1)} match",
        f"assign one {order(2)} match",
        f"assign one {order(4)} match",
        f"assign two {order(5)} match",
        f"unassign one {order(1, 'closed')} oof",
        f"unassign two {order(5)} oof",
        f"unassign one {order(2)} unsubscribe",
        f"unassign one {order(4)} unsubscribe",
        f"assign two {order(2)} unsubscribe",
        f"assign two {order(4)} unsubscribe",
    ]


def test_a_client_shares_until_its_last_subscription_ends() -> None:
    bench, _ = sharing()

    def live() -> None:
        peer = worker(bench, "one")
        peer.send({"c": "subscribe", "t": "control", "sub_id": "2"})
        peer.send({"c": "unsubscribe", "sub_id": "1"})
        assert "unassign" not in " ".join(bench.echoes())
        peer.leave()

    bench.run(live)
    told = [text.split()[0] for text in bench.echoes()]
    assert told == ["assign", "assign", "unassign", "unassign"]


def test_a_busy_action_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many records at once do not flood the queue of the action, and none is forgotten."""
    monkeypatch.setattr("actions.action.MAX_PENDING_RUNS", 20)
    bench, peer = with_records()
    for key in range(60):
        put(peer, key, "open")

    async def live() -> None:
        bench.add(("amps-action-on-message-affinity", AFFINITY), SAY)
        action = bench.actions[0]
        worker(bench, "one")
        for _ in range(10):
            await action.wait_until_idle()
            bench.core.clock.advance(0.1)

    bench.run(live)
    assert len(set(bench.echoes())) == 60
    assert not bench.entries("29-0107")


@given(
    st.lists(
        st.tuples(st.sampled_from(["join", "leave", "add", "drop", "next"]), st.integers(0, 5)),
        max_size=80,
    )
)
def test_what_is_told_adds_up(operations: list[tuple[str, int]]) -> None:
    """Every record is with one client at most, told in pairs, and in the end all have one."""
    affinities = MessageAffinities()
    clients: set[int] = set()
    records: set[int] = set()
    owners: dict[str, int] = {}

    def hear(told: AffinityAssignment | None) -> bool:
        if told is None:
            return False
        key = told.record[1]
        if told.is_assignment:
            assert key not in owners
            assert told.client[0] in clients
            owners[key] = told.client[0]
        else:
            assert owners.pop(key) == told.client[0]
        return True

    for operation, number in operations:
        key = "t", str(number)
        if operation == "join":
            clients.add(number)
            affinities.add_client((number, ""))
        elif operation == "leave":
            clients.discard(number)
            affinities.remove_client((number, ""), "unsubscribe")
        elif operation == "add":
            records.add(number)
            affinities.add_record(key, "match")
        elif operation == "drop":
            records.discard(number)
            hear(affinities.remove_record(key, "oof"))
        else:
            hear(affinities.next_change())
    while hear(affinities.next_change()):
        pass
    assert set(owners) == ({str(number) for number in records} if clients else set())
