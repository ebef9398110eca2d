"""Acknowledgements that have come before their messages.

Source: AMPS User Guide, DeferredAckExpiration.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from server.queues.events import Mark


class DeferredAcks:
    """Bookmarks of messages that are done when they come.

    Args:
        limit: how many are kept; beyond, the oldest is dropped.

    Attributes:
        changes: rises with every change.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.changes = 0
        self._acks = OrderedDict[Mark, int]()  # when they came, oldest first

    def __len__(self) -> int:
        return len(self._acks)

    def __iter__(self) -> Iterator[tuple[Mark, int]]:
        return iter(self._acks.items())

    def add(self, marks: Iterable[Mark], now: int) -> None:
        """Keep acknowledgements."""
        self.changes += 1
        for mark in marks:
            self._acks.pop(mark, None)
            self._acks[mark] = now
        while len(self._acks) > self._limit:
            self._acks.popitem(last=False)

    def take(self, mark: Mark, since: int) -> bool:
        """Whether a message that has come was acknowledged before.

        Args:
            mark: its bookmark.
            since: acknowledgements of that moment and before are too old to count.
        """
        came = self._acks.pop(mark, None)
        if came is None:
            return False
        self.changes += 1
        return came > since

    def drop(self, marks: Iterable[Mark]) -> None:
        """Keep some no longer."""
        self.changes += 1
        for mark in marks:
            self._acks.pop(mark, None)

    @property
    def oldest(self) -> int | None:
        """When the oldest came, None if there is none."""
        return next(iter(self._acks.values()), None)

    def drop_before(self, moment: int) -> None:
        """Keep those no longer that came before a moment."""
        self.changes += 1
        while self._acks:
            if next(iter(self._acks.values())) >= moment:
                return
            self._acks.popitem(last=False)
