"""Triggers on subscriptions: amps-action-on-subscribe and amps-action-on-unsubscribe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actions.module import ModuleProvisionError, Trigger
from server.expressions.topic_names import TopicError, TopicSelector, select_topics
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.topics.subscriptions.client import ClientIdentity

SUBSCRIBE_EVENTS: Final = (
    "subscribe",
    "delta_subscribe",
    "sow_and_subscribe",
    "sow_and_delta_subscribe",
)
"""The events of commands that subscribe."""


class OnSubscription(Trigger):
    """Runs when a client begins or ends a subscription.

    Args:
        options: the options.
        events: the events that run the action.
    """

    def __init__(self, options: Options, events: Sequence[str]) -> None:
        super().__init__(options)
        self._events = events

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the events."""
        topics = watched_topics(self.options, services)
        message_type = self.options.get("MessageType")

        def watch(client: ClientIdentity, details: Mapping[str, str | None]) -> None:
            topic = details["topic"] or ""
            if client.message_type == message_type and (
                topic == topics.text or topics.matches(topic)
            ):
                action.post(
                    {
                        "AMPS_TOPIC": text_to_bytes(topic),
                        "AMPS_CLIENT_NAME": text_to_bytes(client.client_name),
                        "AMPS_OPTIONS": text_to_bytes(details.get("options") or ""),
                        "AMPS_FILTER": text_to_bytes(details.get("filter") or ""),
                    }
                )

        for event in self._events:
            self.end_later(services.engine.hooks.watch_clients(event, watch))


def watched_topics(options: Options, services: ActionServices) -> TopicSelector:
    """Return the topics that the option Topic selects.

    Raises:
        ModuleProvisionError: it is no valid regular expression.
    """
    literal = not services.engine.settings.regex_topics
    try:
        return select_topics(options.get("Topic") or "", literal=literal)
    except TopicError as error:
        raise ModuleProvisionError(str(error)) from None
