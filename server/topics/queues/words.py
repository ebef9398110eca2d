"""What is said of single messages of a queue, wherever somebody is told about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.journal import JournalUnreadable
from server.queues.inspection import obstacles

if TYPE_CHECKING:
    from server.queues import Queue


def bookmark_of(queue: Queue, place: int) -> str:
    """The bookmark of a message, as clients know it."""
    client, sequence = queue.ledger.entries.mark(place)
    return f"{client}|{sequence}|"


def why_it_stays(queue: Queue, place: int, now: int) -> str:
    """What keeps a message from being delivered.

    Args:
        queue: where it is.
        place: its place there.
        now: the moment, in microseconds since 1970.
    """
    try:
        found = obstacles(queue, place, now)
    except JournalUnreadable as problem:
        return f"the transaction log cannot be read: {problem}"
    return "; ".join(obstacle.text for obstacle in found) or "is about to be delivered"
