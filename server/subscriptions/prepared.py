"""Deliveries that have been prepared, by what decides who gets a message.

What decides is which filters match, and there are more sets of filters than could be kept. So there
is a limit, for what all sets take together: the deliveries that they consist of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

_Key = TypeVar("_Key")
_Recipient = TypeVar("_Recipient")

_MOST_KEPT: Final = 65_536
"""Sets and deliveries in them."""


class PreparedSets(dict[_Key, Sequence[_Recipient]]):
    """Deliveries by what they depend on; a dictionary that is emptied when it grows too large."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def keep(self, key: _Key, recipients: Sequence[_Recipient]) -> Sequence[_Recipient]:
        """Keep what has been prepared, and give it back.

        Args:
            key: what it depends on.
            recipients: what it consists of.
        """
        size = 1 + len(recipients)
        if self._size + size > _MOST_KEPT:
            self.clear()
        self._size += size
        self[key] = recipients
        return recipients

    def clear(self) -> None:
        """Let go of everything, since other subscriptions are there now, or of too much."""
        super().clear()
        self._size = 0
