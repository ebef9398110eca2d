"""Instances that take in what others have recorded: what all tests of that do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.storage.journal import JournalEntry
from server.topics.record_source import RecordSource
from tests.engine.replicas import Replica
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec

Prepare = Callable[[Core], None]


Make = Callable[..., Replica]


ORDERS = [b'{"id":%d,"other":%d}' % (number, number // 2) for number in range(20)]


def keep_orders(core: Core) -> None:
    """Topic `orders` has records."""
    core.keep(topic_spec("/id", expiration_enabled=True))


def keep_by(*keys: str, **more: Any) -> Prepare:
    """Topic `orders` has records with other keys."""
    return lambda core: core.keep(topic_spec(*keys), **more)


def publish(peer: CorePeer, topic: str, body: bytes, **header: Any) -> None:
    """Publish a message."""
    peer.send({"c": "publish", "t": topic} | header, body)


def frames(peer: CorePeer) -> list[tuple[dict[str, Any], bytes]]:
    """The messages that have come."""
    return [(head, body) for head, body in peer.take_frames() if head["c"] in ("p", "oof")]


def by_subscription(
    came: list[tuple[dict[str, Any], bytes]],
) -> dict[str, list[tuple[str, str, bytes, str]]]:
    """The same for each of them."""
    found: dict[str, list[tuple[str, str, bytes, str]]] = {}
    for sub_id, *rest in at_sub_ids(came):
        found.setdefault(sub_id, []).append(tuple(rest))  # type: ignore[arg-type]  # of four, which mypy loses
    return found


def at_sub_ids(
    came: list[tuple[dict[str, Any], bytes]],
) -> list[tuple[str, str, str, bytes, str]]:
    """What each subscription got, in order."""
    return [
        (sub_id, head["c"], head["t"], body, head.get("bm", ""))
        for head, body in came
        for sub_id in head.get("sids", head.get("sub_id", "")).split(",")
    ]


def records(replica: Replica, topic: str = "orders") -> dict[str, tuple[bytes, str, str]]:
    """The records of a topic by key."""
    keeper = replica.core.engine.sow_registry.find("json", topic)
    assert keeper is not None
    return contents(keeper)


def contents(keeper: RecordSource) -> dict[str, tuple[bytes, str, str]]:
    """The records of a topic by key."""
    table = keeper.table
    found = [table.store.read_record(row) for _, row in table.store.identities()]
    return {one.key: (one.body, one.bookmark, one.correlation_id) for one in found}


def essence(entry: JournalEntry) -> tuple[object, ...]:
    """What is the same of an entry on all instances."""
    return (
        entry.client,
        entry.sequence,
        entry.kind,
        entry.topic,
        entry.body,
        entry.sow_key,
        entry.given_key,
        entry.correlation_id,
        entry.expiration,
        entry.origin.auth_id,
    )
