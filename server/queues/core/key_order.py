"""Order per key: of the messages with one key, one is offered at a time.

The messages of a key are a chain in arrival order. The first is offered; the others wait BEHIND it,
whatever happens to its leases, until it has left the queue. Other keys are not affected: keys are
not assigned to consumers, so no consumer can stall them. A message that leaves the queue from the
middle of a chain remains linked until it becomes the first.
"""

from __future__ import annotations

from collections.abc import Callable


class KeyChains:
    """The chains of messages of one queue, by the hash of their key."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}  # key -> the last offset
        self._next: dict[int, int] = {}  # offset -> the next with the same key

    def append(self, key: int, offset: int) -> bool:
        """Append a message to its chain.

        Returns:
            Whether it is the first, and may be offered.
        """
        previous = self._last.get(key)
        self._last[key] = offset
        if previous is None:
            return True
        self._next[previous] = offset
        return False

    def remove_first(self, key: int, offset: int, is_present: Callable[[int], bool]) -> int | None:
        """Unlink the first message of a chain, which has left the queue.

        Returns:
            The message that may be offered now; None if there is none.
        """
        following = self._next.pop(offset, None)
        while following is not None and not is_present(following):
            following = self._next.pop(following, None)
        if following is None:
            del self._last[key]
        return following
