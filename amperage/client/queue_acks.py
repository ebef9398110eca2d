"""Batches of acknowledgements of queue messages.

One command can acknowledge many messages, and costs the server hardly more than a command for a
single message. Therefore acknowledgements are batched for a short time. A batch is at most half of
the subscription's backlog, so that the queue never has to wait for acknowledgements before it can
deliver.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

_DEFAULT_BATCH_SIZE: Final = 80
"""Default batch size. Larger batches gain little."""

DEFAULT_DELAY: Final = 0.1
"""Seconds that an acknowledgement waits for its batch to fill."""

_ACKS_PER_FLUSH: Final = 1000
"""Acknowledgements between two flush commands, which confirm that they are stored."""

_EFFECTIVE: Final = re.compile(r"(?:^|,)\s*max_backlog=(\d+)")


@dataclass(frozen=True)
class AckRules:
    """The rules for acknowledging the messages of one subscription.

    Attributes:
        is_automatic: whether messages are acknowledged once they are marked as processed.
        batch: the maximum number of acknowledgements in one command; None selects a default.
        delay: maximum seconds that an acknowledgement waits for its batch to fill.
    """

    is_automatic: bool = False
    batch: int | None = None
    delay: float = DEFAULT_DELAY

    def batch_for(self, backlog: int) -> int:
        """Return the batch size for a subscription with a backlog of so many messages."""
        return min(self.batch or _DEFAULT_BATCH_SIZE, max(1, backlog // 2))


class AckBatches:
    """Acknowledgements that have not been sent, by queue.

    Attributes:
        due: the latest time to send them, on the caller's clock; None if there are none.
    """

    __slots__ = ("_by_queue", "due")

    def __init__(self) -> None:
        self._by_queue: dict[str, list[str]] = {}
        self.due: float | None = None

    def add(self, queue: str, bookmark: str, due: float) -> int:
        """Add an acknowledgement.

        Returns:
            The number of acknowledgements for the queue.
        """
        bookmarks = self._by_queue.setdefault(queue, [])
        bookmarks.append(bookmark)
        self.due = due if self.due is None else min(self.due, due)
        return len(bookmarks)

    def take_batches(self) -> list[tuple[str, list[str]]]:
        """Remove and return all acknowledgements: queues, and bookmarks of their messages."""
        taken = list(self._by_queue.items())
        self._by_queue = {}
        self.due = None
        return taken


class UnconfirmedAcks:
    """Acknowledgements that are not known to be stored, to be sent again on a new connection.

    They can be lost with the connection, or the server, which does not answer them. From time to
    time, a flush command confirms all of them. A queue ignores an acknowledgement received twice.
    """

    __slots__ = ("_ack_count", "_commands", "_flush_counts", "_flushed_count")

    def __init__(self) -> None:
        self._commands: deque[tuple[int, bytes]] = deque()  # each with the count including it
        self._ack_count = 0
        self._flushed_count = 0  # the count at the last flush command
        self._flush_counts: dict[str, int] = {}  # flush command id -> the count it confirms

    def add(self, command: bytes, bookmarks: int) -> None:
        """Add a command that acknowledges `bookmarks` messages."""
        self._ack_count += bookmarks
        self._commands.append((self._ack_count, command))

    @property
    def needs_flush(self) -> bool:
        """Whether enough have been sent since the last flush command to send another."""
        return self._ack_count - self._flushed_count >= _ACKS_PER_FLUSH

    def record_flush(self, command_id: str) -> None:
        """Record that a flush command was sent, which confirms everything sent before."""
        self._flushed_count = self._ack_count
        self._flush_counts[command_id] = self._ack_count

    def record_flush_answer(self, command_id: str, *, is_safe: bool) -> None:
        """Process the answer to a flush command. Answers to other commands have no effect."""
        count = self._flush_counts.pop(command_id, 0)
        while is_safe and self._commands and self._commands[0][0] <= count:
            self._commands.popleft()

    def commands_to_resend(self) -> bytes:
        """Return the commands to send again on a new connection."""
        return b"".join(command for _, command in self._commands)


def effective_backlog(options: str | None) -> int | None:
    """Return the backlog granted in the server's acknowledgement of a subscription to queues."""
    match = _EFFECTIVE.search(options or "")
    return int(match[1]) if match else None
