"""Callbacks for events of the engine, for the components that act on them: the actions.

One narrow object that the engine calls and that is independent of its listeners. Nothing here is on
the path of a message: events of clients are reported by name, and callbacks for deliveries are
built into the deliveries of the topics concerned, when these are prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.expressions.topic_names import TopicSelector
    from server.topics.subscriptions.client import ClientIdentity
    from server.topics.subscriptions.delivery.delivery_hooks import DeliveryWatcher

ClientWatcher = Callable[["ClientIdentity", Mapping[str, str | None]], None]
"""Takes the client, and details of the event by their names in /AMPS/ClientStatus."""


@dataclass(frozen=True, slots=True)
class _DeliveryWatch:
    message_type: str
    selector: TopicSelector
    watcher: DeliveryWatcher


class Hooks:
    """Registry of callbacks. Those for deliveries are added before any connection, and stay."""

    def __init__(self) -> None:
        self._client_watchers: dict[str, tuple[ClientWatcher, ...]] = {}
        self._delivery_watches: list[_DeliveryWatch] = []

    def watch_clients(self, event: str, watcher: ClientWatcher) -> Callable[[], None]:
        """Notify a watcher of an event of any client.

        Args:
            event: an event of /AMPS/ClientStatus, or `offline_start` or `offline_stop`.
            watcher: called with the client and details.

        Returns:
            A function that ends that.
        """
        self._client_watchers[event] = (*self._client_watchers.get(event, ()), watcher)

        def end() -> None:
            watchers = self._client_watchers.pop(event)
            if others := tuple(one for one in watchers if one is not watcher):
                self._client_watchers[event] = others

        return end

    def has_client_watchers(self, event: str) -> bool:
        """Return whether an event of clients has a watcher."""
        return event in self._client_watchers

    def notify_client_watchers(
        self, event: str, client: ClientIdentity, details: Mapping[str, str | None]
    ) -> None:
        """Notify the watchers of an event of a client.

        Args:
            event: the client's action.
            client: the client.
            details: the event's further fields, by their names in JSON.
        """
        for watcher in self._client_watchers.get(event, ()):
            watcher(client, details)

    def watch_deliveries(
        self, message_type: str, topics: TopicSelector, watcher: DeliveryWatcher
    ) -> None:
        """Notify a watcher of all deliveries of some topics to clients."""
        self._delivery_watches.append(_DeliveryWatch(message_type, topics, watcher))

    def delivery_watchers(self, message_type: str, topic: str) -> list[DeliveryWatcher]:
        """Return the watchers of the deliveries of a topic."""
        if not self._delivery_watches:  # the usual case, checked for each subscription
            return []
        return [
            watch.watcher
            for watch in self._delivery_watches
            if watch.message_type == message_type and watch.selector.matches(topic)
        ]
