"""States of records that a client has, kept for its `oof` messages.

With conflation the state in an `oof` is the one sent last, and not the record's state before its
last change (AMPS User Guide, Out-of-Focus Messages). It is charged to the client's memory (Slow
Client Management and Capacity Limits): bodies are counted, the rest is an estimate.

The states are kept if they do not follow from the records: for plain subscriptions, pages and
groups (see server/topics/subscriptions/delivery/record_conflation.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

FocusKey: TypeAlias = tuple[str, str]
"""The conflation key of a message: the topic, and the values of the key fields."""

_ENTRY_BYTES: Final = 300
"""Bytes that an entry takes, apart from the body."""


class FocusState:
    """Bodies last sent to a client, by key.

    Args:
        charge_memory: charges bytes to the client, negative to release.
    """

    __slots__ = ("_bodies", "_charge_memory", "_is_charged")

    def __init__(self, charge_memory: Callable[[int], None]) -> None:
        self._charge_memory: Final = charge_memory
        self._bodies: Final[dict[FocusKey, bytes]] = {}
        self._is_charged = True

    def get(self, key: FocusKey) -> bytes | None:
        """Return the body that the client has; None if it has none."""
        return self._bodies.get(key)

    def put(self, key: FocusKey, body: bytes) -> None:
        """Record that a body is sent to the client."""
        earlier = self._bodies.get(key)
        self._bodies[key] = body
        self._charge(_ENTRY_BYTES + len(body) if earlier is None else len(body) - len(earlier))

    def pop(self, key: FocusKey) -> bytes | None:
        """Remove and return the client's body; None if it has none."""
        body = self._bodies.pop(key, None)
        if body is not None:
            self._charge(-_ENTRY_BYTES - len(body))
        return body

    def close(self) -> None:
        """Stop charging: the subscription has ended. Its successor may take over the bodies."""
        self._charge(-self._size_bytes())
        self._is_charged = False

    def reopen(self) -> None:
        """Charge again: another subscription takes over from the one that has ended."""
        self._is_charged = True
        self._charge(self._size_bytes())

    def _size_bytes(self) -> int:
        return sum(_ENTRY_BYTES + len(body) for body in self._bodies.values())

    def _charge(self, size: int) -> None:
        if self._is_charged:
            self._charge_memory(size)
