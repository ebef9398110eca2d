"""Copies of messages that a queue delivered again, because their lease had ended.

A worker that is busy for longer than a lease has several copies of the same messages waiting when
it comes back. Only the last of them counts, and none does once the message has been dealt with: a
copy that was on its way meanwhile brings no new work. Should the queue not have heard of it, which
happens if the lease had ended before and another consumer had it, then it is told once more.

Source: AMPS User Guide, LeasePeriod.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from amperage.client.message import Message

_REMEMBERED: Final = 10_000
"""Messages of one subscription that are known to be done: copies of those before are long here."""

_FINAL: Final = (None, "expire")
"""What is said of messages that the queue is not to deliver again."""

Identity = tuple[str, str]
"""A message whatever its copy: queue and bookmark."""


class Redelivery:
    """What one subscription knows of messages with leases that end.

    It is asked by the threads that take messages while another one adds to it.
    """

    __slots__ = ("_done", "_newest")

    def __init__(self) -> None:
        self._newest: dict[Identity, Message] = {}  # of those that have not been taken
        self._done: OrderedDict[Identity, str | None] = OrderedDict()  # with what was said of them

    def arrived(self, message: Message) -> None:
        """A copy is about to wait: those before it count no more."""
        self._newest[_identity(message)] = message

    def is_worth_taking(self, message: Message) -> bool:
        """Whether a copy that has waited is still the last, and nothing was said of it since."""
        identity = _identity(message)
        newest = self._newest.pop(identity, None)
        if newest is not None and newest is not message:
            self._newest.setdefault(identity, newest)
        return newest is message

    def settled(self, message: Message, options: str | None) -> None:
        """Something was said of a message: copies that wait are of no use.

        Args:
            message: one of its copies.
            options: what was said; None that it is done with.
        """
        identity = _identity(message)
        self._newest.pop(identity, None)
        if options in _FINAL:
            self._done[identity] = options
            if len(self._done) > _REMEMBERED:
                self._done.popitem(last=False)

    def is_done(self, message: Message) -> bool:
        """Whether the queue was told that the message need not come again."""
        return _identity(message) in self._done

    def said_of(self, message: Message) -> str | None:
        """What was said of a message that is done; see `settled`."""
        return self._done.get(_identity(message))

    def forget(self) -> None:
        """The connection has ended, and all leases with it."""
        self._newest.clear()
        self._done.clear()


def _identity(message: Message) -> Identity:
    return message.topic, message.bookmark or ""
