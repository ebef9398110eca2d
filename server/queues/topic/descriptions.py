"""Descriptions of single messages of a queue, for log entries, reports and the admin interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.queues.core.inspection import obstacles
from server.storage.journal import JournalUnreadableError

if TYPE_CHECKING:
    from server.queues.core import Queue


def bookmark_of(queue: Queue, offset: int) -> str:
    """Return the bookmark of a message, in the form that clients use."""
    client, sequence = queue.lifecycle.entries.bookmark(offset)
    return f"{client}|{sequence}|"


def describe_obstacles(queue: Queue, offset: int, now: int) -> str:
    """Describe the reasons why a message is not delivered.

    Args:
        queue: the queue of the message.
        offset: its offset in the queue.
        now: the time, in microseconds since 1970.
    """
    try:
        reasons = obstacles(queue, offset, now)
    except JournalUnreadableError as problem:
        return f"the transaction log cannot be read: {problem}"
    return "; ".join(obstacle.text for obstacle in reasons) or "is about to be delivered"
