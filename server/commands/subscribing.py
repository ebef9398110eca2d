"""Whoever queries and subscribes, as the commands for that see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from server.commands import sender
from server.commands.persisted_acks import Publisher
from server.queries.run import Asker
from server.replays.listener import Listener

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.replays.tail import Tail
    from server.security.permissions import Permit
    from server.subscriptions.subscription import Subscription


class Querying(Publisher, Asker, Protocol):
    """A connection that queries."""

    def hold(self, size: int, /) -> None:
        """Take note of bytes that are kept in memory for it from now on, or no more.

        Args:
            size: how many; below zero if they are kept no more.
        """

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""


class Surroundings(sender.Surroundings, Protocol):
    """What subscriptions with a bookmark need besides."""

    @property
    def tail(self) -> Tail:
        """Reads the end of the log."""

    @property
    def settled_tail(self) -> Tail:
        """The same for those that ask for messages that are fully durable."""


class Repeated(Protocol):
    """The last plain subscribe command of a connection, and those like it."""

    def remember(self, header: Header, subscription: Subscription) -> None:
        """Keep what a command came to, if it is a plain one."""

    def take(self, header: Header) -> Subscription | None:
        """Place the subscription that a command asks for, if it is like the last one."""


class Subscribing(Querying, Listener, Protocol):
    """A connection that subscribes."""

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Its subscriptions by id."""

    @property
    def memory_of_commands(self) -> int:
        """Bytes that its subscriptions and queries take."""

    @property
    def repeated_subscribes(self) -> Repeated:
        """The last plain one of its subscribe commands, and those like it."""

    def make_sub_id(self) -> str:
        """Make an id for a subscription that came without one."""

    def place(self, subscription: Subscription) -> None:
        """Begin a subscription, in place of one with the same id if there is any."""

    def place_plain(self, subscription: Subscription, permit: Permit) -> None:
        """Begin one that has no part in queues, is no replay, and replaces no other.

        Args:
            subscription: the subscription, to a single topic.
            permit: what its user, who may read the topic, may see of it.
        """
