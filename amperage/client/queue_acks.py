"""Acknowledgements of queue messages, until they are worth sending.

One command can acknowledge many messages, and the server works it off at hardly more cost than one
for a single message. So acknowledgements collect for a moment, never so many that the queue would
have to wait for them: half of what the subscription may hold.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

_MOST_TOGETHER: Final = 80
"""Acknowledgements in one command, unless the caller asks for more: beyond, little is gained."""

DEFAULT_DELAY: Final = 0.1
"""Seconds that an acknowledgement waits for others."""

_CONFIRMED_TOGETHER: Final = 1000
"""Acknowledgements after which the server is asked whether they are safe."""

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
    """Acknowledgements that have not been sent, by queue.

    Attributes:
        due: when they are to be sent at the latest, on the caller's clock; None if there are none.
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


class UnconfirmedAcks:
    """Acknowledgements that may be lost with the connection, or the server, and are sent again.

    Nothing answers acknowledgements. Once in a while the server is asked about all of them. A queue
    ignores an acknowledgement that it has had before.
    """

    __slots__ = ("_asked", "_commands", "_count", "_questions")

    def __init__(self) -> None:
        self._commands: deque[tuple[int, bytes]] = deque()  # each with the count up to it
        self._count = 0
        self._asked = 0  # the count at the last question
        self._questions: dict[str, int] = {}  # by command id: the count that it is about

    def add(self, command: bytes, bookmarks: int) -> None:
        """Keep a command that acknowledges so many messages."""
        self._count += bookmarks
        self._commands.append((self._count, command))

    @property
    def is_to_be_asked(self) -> bool:
        """Whether enough have been sent since the server was asked last."""
        return self._count - self._asked >= _CONFIRMED_TOGETHER

    def asked(self, command_id: str) -> None:
        """A command asks whether all that has been sent is safe."""
        self._asked = self._count
        self._questions[command_id] = self._count

    def answered(self, command_id: str, *, is_safe: bool) -> None:
        """Take the answer to a command that has asked; harmless for other commands."""
        count = self._questions.pop(command_id, 0)
        while is_safe and self._commands and self._commands[0][0] <= count:
            self._commands.popleft()

    def again(self) -> bytes:
        """The commands, to be sent on another connection."""
        return b"".join(command for _, command in self._commands)


def effective_backlog(options: str | None) -> int | None:
    """The backlog that the server grants, from its acknowledgement of a subscription to queues."""
    found = _EFFECTIVE.search(options or "")
    return int(found[1]) if found else None
