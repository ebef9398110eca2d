"""What happens in the engine, for those inside the server who act on it: the actions.

One narrow object that the engine calls and that knows nothing of who listens. Nothing here is on
the way of a message: what clients do is told by name of the event, and whoever watches deliveries
is built into the deliveries of the topics concerned, when these are prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.expressions.topic_names import TopicSelector
    from server.subscriptions.client import Client
    from server.subscriptions.subscriber import DeliveryWatcher

ClientWatcher = Callable[["Client", Mapping[str, str | None]], None]
"""Takes the client, and details of the event by their names in /AMPS/ClientStatus."""


@dataclass(frozen=True, slots=True)
class _DeliveryWatch:
    message_type: str
    topics: TopicSelector
    watcher: DeliveryWatcher


class Hooks:
    """Who watches what. Watchers are added before the first connection, and stay."""

    def __init__(self) -> None:
        self._clients: dict[str, list[ClientWatcher]] = {}
        self._deliveries: list[_DeliveryWatch] = []

    def watch_clients(self, event: str, watcher: ClientWatcher) -> None:
        """Tell a watcher whenever a client does something.

        Args:
            event: an event of /AMPS/ClientStatus, or `offline_start` or `offline_stop`.
            watcher: is told.
        """
        self._clients.setdefault(event, []).append(watcher)

    def watches_clients(self, event: str) -> bool:
        """Whether anybody watches an event of clients."""
        return event in self._clients

    def tell(self, event: str, client: Client, details: Mapping[str, str | None]) -> None:
        """Tell whoever watches that a client has done something."""
        for watcher in self._clients.get(event, ()):
            watcher(client, details)

    def watch_deliveries(
        self, message_type: str, topics: TopicSelector, watcher: DeliveryWatcher
    ) -> None:
        """Tell a watcher of everything that clients are sent from some topics."""
        self._deliveries.append(_DeliveryWatch(message_type, topics, watcher))

    def delivery_watchers(self, message_type: str, topic: str) -> list[DeliveryWatcher]:
        """Who watches the deliveries of a topic."""
        if not self._deliveries:  # as mostly, and it is asked for each subscription
            return []
        return [
            watch.watcher
            for watch in self._deliveries
            if watch.message_type == message_type and watch.topics.matches(topic)
        ]
