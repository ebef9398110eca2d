"""Drops outdated copies of messages that a queue redelivers because their lease has ended.

A consumer that is busy for longer than a lease has several copies of the same message in its inbox.
Only the newest copy is valid, and none is once the message has been settled: a copy that was in
transit meanwhile is no new work. The queue may have ignored the acknowledgement, if the lease had
ended and another consumer had the message. Therefore the acknowledgement is sent again for such a
copy.

Source: AMPS User Guide, LeasePeriod.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from amperage.client.message import Message

_MAX_SETTLED_MESSAGES: Final = 10_000
"""Settled messages to remember per subscription. Copies of older ones have arrived long before."""

_FINAL: Final = (None, "expire")
"""The outcomes after which the queue must not deliver a message again; None acknowledges it."""

MessageIdentity = tuple[str, str]
"""The identity of all copies of a message: queue and bookmark."""


class Redelivery:
    """The redelivery state of one subscription, for messages whose leases have an end.

    The threads that take messages read it while the reading thread adds to it.
    """

    __slots__ = ("_newest_copies", "_outcomes")

    def __init__(self) -> None:
        # The newest copy of each message not yet taken.
        self._newest_copies: dict[MessageIdentity, Message] = {}
        self._outcomes: OrderedDict[MessageIdentity, str | None] = (
            OrderedDict()
        )  # with their outcomes

    def record_copy(self, message: Message) -> None:
        """Record that a copy is put into the inbox, which makes earlier copies outdated."""
        self._newest_copies[_identity(message)] = message

    def take_if_newest(self, message: Message) -> bool:
        """Return whether a copy from the inbox is the newest, and the message is not settled."""
        identity = _identity(message)
        newest = self._newest_copies.pop(identity, None)
        if newest is not None and newest is not message:
            self._newest_copies.setdefault(identity, newest)
        return newest is message

    def record_outcome(self, message: Message, options: str | None) -> None:
        """Record the outcome of a message, which makes the copies in the inbox outdated.

        Args:
            message: a copy of the message.
            options: the outcome, such as "expire"; None if the message was acknowledged.
        """
        identity = _identity(message)
        self._newest_copies.pop(identity, None)
        if options in _FINAL:
            self._outcomes[identity] = options
            if len(self._outcomes) > _MAX_SETTLED_MESSAGES:
                self._outcomes.popitem(last=False)

    def is_settled(self, message: Message) -> bool:
        """Return whether the message was acknowledged or expired."""
        return _identity(message) in self._outcomes

    def outcome_of(self, message: Message) -> str | None:
        """Return the outcome of a message that is done; see `record_outcome`."""
        return self._outcomes.get(_identity(message))

    def clear(self) -> None:
        """Clear the state when the connection has ended, and all leases with it."""
        self._newest_copies.clear()
        self._outcomes.clear()


def _identity(message: Message) -> MessageIdentity:
    return message.topic, message.bookmark or ""
