"""What a client has of the records that it is to be told about when they go out of focus.

With conflation that is what it was sent last, and not what the record was before its last change
(AMPS User Guide, Out-of-Focus Messages). It counts as memory of the client (Slow Client Management
and Capacity Limits): bodies are counted, the rest is an estimate.

It is kept where it does not follow from the records: for plain subscriptions, pages and groups (see
server/subscriptions/record_conflation.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, str]
"""What tells the messages of a subscription apart: the topic, and the values of the key fields."""

_ENTRY: Final = 300
"""Bytes that an entry takes, apart from the body."""


class Received:
    """Bodies that a client was sent last, by key.

    Args:
        hold: takes note of bytes that are kept for the client from now on, or no more.
    """

    __slots__ = ("_bodies", "_hold", "_is_counted")

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold: Final = hold
        self._bodies: Final[dict[Key, bytes]] = {}
        self._is_counted = True

    def get(self, key: Key) -> bytes | None:
        """What the client has; None if it has nothing."""
        return self._bodies.get(key)

    def put(self, key: Key, body: bytes) -> None:
        """The client is sent a body."""
        earlier = self._bodies.get(key)
        self._bodies[key] = body
        self._count(_ENTRY + len(body) if earlier is None else len(body) - len(earlier))

    def pop(self, key: Key) -> bytes | None:
        """The client has it no more; returns what that was, None for nothing."""
        body = self._bodies.pop(key, None)
        if body is not None:
            self._count(-_ENTRY - len(body))
        return body

    def close(self) -> None:
        """The subscription has ended. Another one may go on with what its client has."""
        self._count(-self._size())
        self._is_counted = False

    def reopen(self) -> None:
        """Another subscription goes on, in place of the one that has ended."""
        self._is_counted = True
        self._count(self._size())

    def _size(self) -> int:
        return sum(_ENTRY + len(body) for body in self._bodies.values())

    def _count(self, size: int) -> None:
        if self._is_counted:
            self._hold(size)
