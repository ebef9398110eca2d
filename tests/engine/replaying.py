"""Bookmark subscriptions: what all tests of them do."""

from __future__ import annotations

from tests.engine.support import CorePeer


def publish(peer: CorePeer, topic: str, *bodies: bytes) -> None:
    """Publish messages."""
    for body in bodies:
        peer.send({"c": "publish", "t": topic}, body)


def subscribe(peer: CorePeer, sub_id: str, topic: str, bookmark: str, options: str = "") -> None:
    """Begin a bookmark subscription."""
    peer.send(
        {"c": "subscribe", "cid": sub_id, "sub_id": sub_id, "t": topic, "bm": bookmark}
        | {"o": options, "a": "processed,completed"}
    )


def messages(peer: CorePeer) -> list[tuple[str, bytes]]:
    """The messages that have come: ids of subscriptions, and bodies."""
    return [(head["sids"], body) for head, body in peer.take_frames() if head["c"] == "p"]
