"""The interface of a session that the commands for queries and subscriptions use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from server.engine.commands import context
from server.engine.commands.persisted_acks import PublishSession
from server.engine.queries.execution import QueryClient
from server.engine.replays.replay_client import ReplayClient

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.replays.tail import ReplayTail
    from server.security.permissions import Permit
    from server.topics.subscriptions.subscription import Subscription


class QuerySession(PublishSession, QueryClient, Protocol):
    """A connection that queries."""

    def hold(self, size: int, /) -> None:
        """Charge memory to this session.

        Args:
            size: bytes, negative to release.
        """

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""


class SubscriptionEngine(context.CommandEngine, Protocol):
    """The interface of the engine that subscriptions with a bookmark need besides."""

    @property
    def tail(self) -> ReplayTail:
        """The reader of the end of the log."""

    @property
    def settled_tail(self) -> ReplayTail:
        """The same for subscriptions to fully durable messages only."""


class SubscribeTemplate(Protocol):
    """The last plain subscribe command of a connection, as a model for those like it."""

    def remember(self, header: Header, subscription: Subscription) -> None:
        """Keep the result of a command, if it is a plain one."""

    def take(self, header: Header) -> Subscription | None:
        """Place the subscription that a command requests, if it is like the last one."""


class SubscribeSession(QuerySession, ReplayClient, Protocol):
    """A connection that subscribes."""

    @property
    def engine(self) -> SubscriptionEngine:
        """The engine that it belongs to."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Its subscriptions by id."""

    @property
    def memory_of_commands(self) -> int:
        """Bytes charged to its subscriptions and queries."""

    @property
    def repeated_subscribes(self) -> SubscribeTemplate:
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
