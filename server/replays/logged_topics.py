"""Topics fed from the log: they match, frame and conflate what is read for bookmark subscriptions.

Each reader of the log has some of its own, for the subscriptions that it reads for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.replays.logged import LoggedEnvelope
from server.security.entitlement import Permission
from server.topics.topic import Topic

if TYPE_CHECKING:
    from server.engine import Settings
    from server.journal import Entry
    from server.journal import Topic as TopicName
    from server.subscriptions.delivery import Delivery
    from server.subscriptions.subscription import Subscription

_MOST_KEPT: Final = 16_384


class LoggedTopics:
    """Who gets what is read.

    Args:
        settings: how bodies are read, and what filters may call.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._subscriptions: list[Subscription] = []
        self._topics: dict[TopicName, Topic | None] = {}

    def attach(self, subscription: Subscription) -> None:
        """Deliver to a subscription from now on."""
        self._subscriptions.append(subscription)
        for name, topic in list(self._topics.items()):
            if _is_for(subscription, name):
                if topic is None:
                    self._topics[name] = self._make(name, [subscription])
                else:
                    topic.attach(subscription)

    def detach(self, subscription: Subscription) -> None:
        """Deliver to a subscription no more."""
        self._subscriptions.remove(subscription)
        for topic in self._topics.values():
            if topic is not None:
                topic.detach(subscription)

    def wants(self, name: TopicName) -> bool:
        """Whether anybody wants messages of a topic."""
        topic = self._find(name)
        return topic is not None and topic.has_subscriptions

    def deliveries(self, entry: Entry) -> tuple[Sequence[Delivery], LoggedEnvelope]:
        """How a message gets to those who want it; there are none if nobody does."""
        envelope = LoggedEnvelope(entry)
        topic = self._find(entry.topic)
        return () if topic is None else topic.deliveries(entry.body, envelope), envelope

    def _find(self, name: TopicName) -> Topic | None:
        try:
            return self._topics[name]
        except KeyError:
            pass
        if len(self._topics) >= _MOST_KEPT:
            self._topics.clear()
        wanting = [one for one in self._subscriptions if _is_for(one, name)]
        topic = self._topics[name] = self._make(name, wanting) if wanting else None
        return topic

    def _make(self, name: TopicName, wanting: Sequence[Subscription]) -> Topic:
        message_type = self._settings.message_types[name.message_type]
        topic = Topic(message_type, name.name, self._settings.functions)
        for subscription in wanting:
            topic.attach(subscription)
        return topic


def _is_for(subscription: Subscription, topic: TopicName) -> bool:
    """Whether a topic is one that a subscription is for, and its user may read.

    What was recorded of topics that are no longer to be is not delivered.
    """
    session = subscription.session
    return (
        topic.message_type == session.message_type
        and subscription.selector.matches(topic.name)
        and session.find_topic(topic.name).is_journaled
        and session.may(Permission.READ_TOPIC, topic.name)
    )
