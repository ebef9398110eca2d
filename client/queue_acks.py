"""Acknowledgements of queue messages, until they are worth sending.

One command can acknowledge many messages, and the server works it off at hardly more cost than one
for a single message. So acknowledgements collect for a moment, never so many that the queue would
have to wait for them: half of what the subscription may hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MOST_TOGETHER: Final = 80
"""Acknowledgements in one command, unless somebody asks for more: beyond, little is gained."""

DEFAULT_DELAY: Final = 0.1
"""Seconds that an acknowledgement waits for others."""

_EFFECTIVE: Final = re.compile(r"(?:^|,)\s*max_backlog=(\d+)")


@dataclass(frozen=True)
class AckRules:
    """How the messages of one subscription are acknowledged.

    Attributes:
        is_automatic: whether messages are acknowledged when they have been dealt with.
        batch: acknowledgements in one command; None for what suits the subscription's backlog.
        delay: seconds that an acknowledgement waits for others at most.
    """

    is_automatic: bool = False
    batch: int | None = None
    delay: float = DEFAULT_DELAY

    def batch_for(self, backlog: int) -> int:
        """How many acknowledgements to send together, with a backlog of so many messages."""
        return min(self.batch or _MOST_TOGETHER, max(1, backlog // 2))


class AckBatches:
    """What has been acknowledged and not been sent, by queue.

    Attributes:
        due: when it is to be sent at the latest, on the clock of whoever adds; None if it is empty.
    """

    __slots__ = ("_by_queue", "due")

    def __init__(self) -> None:
        self._by_queue: dict[str, list[str]] = {}
        self.due: float | None = None

    def add(self, queue: str, bookmark: str, due: float) -> int:
        """Take in an acknowledgement.

        Returns:
            How many there are for the queue now.
        """
        bookmarks = self._by_queue.setdefault(queue, [])
        bookmarks.append(bookmark)
        self.due = due if self.due is None else min(self.due, due)
        return len(bookmarks)

    def take(self) -> list[tuple[str, list[str]]]:
        """Remove everything: queues, and bookmarks of their messages."""
        taken = list(self._by_queue.items())
        self._by_queue = {}
        self.due = None
        return taken


def effective_backlog(options: str | None) -> int | None:
    """The backlog that the server grants, from its acknowledgement of a subscription to queues."""
    found = _EFFECTIVE.search(options or "")
    return int(found[1]) if found else None
