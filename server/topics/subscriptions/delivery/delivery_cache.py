"""Cache of prepared deliveries, by the conditions that select the recipients of a message.

The recipients depend on the matching filters, and there are more sets of filters than can be kept.
So the total size of the sets is limited: the number of deliveries in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

_Key = TypeVar("_Key")
_Recipient = TypeVar("_Recipient")

_MAX_SIZE: Final = 65_536
"""Limit on sets plus the deliveries in them."""


class DeliveryCache(dict[_Key, Sequence[_Recipient]]):
    """Deliveries by the conditions they depend on; a dictionary, cleared when it is too large."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def store(self, key: _Key, recipients: Sequence[_Recipient]) -> Sequence[_Recipient]:
        """Cache prepared deliveries, and return them.

        Args:
            key: the conditions that they depend on.
            recipients: the deliveries.
        """
        size = 1 + len(recipients)
        if self._size + size > _MAX_SIZE:
            self.clear()
        self._size += size
        self[key] = recipients
        return recipients

    def clear(self) -> None:
        """Drop all entries, because the subscriptions have changed or the limit is reached."""
        super().clear()
        self._size = 0
