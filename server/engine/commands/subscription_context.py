"""The interface of a session that the commands for queries and subscriptions use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from server.engine.commands import context
from server.engine.commands.persisted_acks import Publisher
from server.engine.queries.execution import Asker
from server.engine.replays.replay_client import Listener

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.replays.tail import Tail
    from server.security.permissions import Permit
    from server.topics.subscriptions.subscription import Subscription


class Querying(Publisher, Asker, Protocol):
    """A connection that queries."""

    def hold(self, size: int, /) -> None:
        """Charge memory to this session.

        Args:
            size: bytes, negative to release.
        """

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""


class Surroundings(context.Surroundings, Protocol):
    """The interface of the engine that subscriptions with a bookmark need besides."""

    @property
    def tail(self) -> Tail:
        """The reader of the end of the log."""

    @property
    def settled_tail(self) -> Tail:
        """The same for subscriptions to fully durable messages only."""


class Repeated(Protocol):
    """The last plain subscribe command of a connection, as a model for those like it."""

    def remember(self, header: Header, subscription: Subscription) -> None:
        """Keep the result of a command, if it is a plain one."""

    def take(self, header: Header) -> Subscription | None:
        """Place the subscription that a command requests, if it is like the last one."""


class Subscribing(Querying, Listener, Protocol):
    """A connection that subscribes."""

    @property
    def engine(self) -> Surroundings:
        """The engine that it belongs to."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Its subscriptions by id."""

    @property
    def memory_of_commands(self) -> int:
        """Bytes charged to its subscriptions and queries."""

    @property
    def repeated_subscribes(self) -> Repeated:
        """The last plain one of its subscribe commands, as a model for those like it."""

    def make_sub_id(self) -> str:
        """Return a new id for a subscription that came without one."""

    def place(self, subscription: Subscription) -> None:
        """Begin a subscription, in place of one with the same id, if there is any."""

    def place_plain(self, subscription: Subscription, permit: Permit) -> None:
        """Begin a subscription that has no part in queues, is no replay, and replaces no other.

        Args:
            subscription: the subscription, to a single topic.
            permit: its user's permit, which allows reading the topic.
        """
