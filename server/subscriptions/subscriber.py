"""Whoever subscribes, as subscriptions see it: it takes bytes, and holds memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from server.subscriptions.client import Client

if TYPE_CHECKING:
    from server.base.log import Log
    from server.security.permissions import Permit
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.outbox import Outbox


class DeliveryWatcher(Protocol):
    """Told of messages that have been delivered to a client."""

    def __call__(
        self, client: Client, topic: str, bodies: Sequence[bytes], envelope: Envelope, /
    ) -> None:
        """Take note of deliveries.

        Args:
            client: to whom.
            topic: of which topic.
            bodies: the messages, as they were published.
            envelope: what they have in common.
        """


class Subscriber(Client, Protocol):
    """A client that subscribes."""

    @property
    def outbox(self) -> Outbox:
        """What is on its way to it."""

    @property
    def log(self) -> Log:
        """Where is said what becomes of its subscriptions."""

    @property
    def is_open(self) -> bool:
        """Whether it is still served."""

    def is_behind(self) -> bool:
        """Whether it has not read everything yet."""

    def hold(self, size: int, /) -> None:
        """Take note of bytes that are kept in memory for it from now on, or no more.

        Args:
            size: how many; below zero if they are kept no more.
        """

    def permit_to_read(self, topic: str) -> Permit:
        """What its user may see of a topic; a refusal is counted."""

    def delivery_watchers(self, topic: str) -> Sequence[DeliveryWatcher]:
        """Who is told of what it is sent of a topic."""

    def subscription_failed(self, sub_id: str, topic: str, error: Exception) -> None:
        """Take note that something has failed on behalf of one of its subscriptions.

        Args:
            sub_id: the subscription's id.
            topic: the topics that it is for, as its client named them.
            error: what has failed.
        """
