"""Optional attributes of messages that enter a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """Attributes of messages that enter a queue, beside their bookmarks; one value per message.

    Attributes:
        barriers: whether they match the BarrierExpression.
        lifetimes: their own expirations in microseconds, None for none.
        priorities: values of the Priority, None or NaN if the value is not a number.
        keys: 64-bit hashes of their keys, 0 for none: such messages wait for no other.
        sow_keys: their SOW keys, 0 for none.
        owners: the instances that own them, empty for this one.
    """

    barriers: Sequence[bool] | None = None
    lifetimes: Sequence[int | None] | None = None
    priorities: Sequence[float | None] | None = None
    keys: Sequence[int] | None = None
    sow_keys: Sequence[int] | None = None
    owners: Sequence[str] | None = None

    @property
    def only_owner(self) -> str:
        """The one owner of all messages, if they have no other attributes; otherwise empty."""
        owners = self.owners
        if not owners or owners.count(owners[0]) < len(owners):
            return ""
        return owners[0] if self == MessageDetails(owners=owners) else ""

    def part(self, start: int, stop: int) -> MessageDetails:
        """Return the attributes of a slice of the messages."""
        return MessageDetails(
            **{
                name: None if values is None else values[start:stop]
                for name in self.__slots__
                if (values := getattr(self, name)) is not None
            }
        )


NO_MESSAGE_DETAILS: Final = MessageDetails()
