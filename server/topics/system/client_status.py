"""/AMPS/ClientStatus: the actions of clients.

Source: AMPS User Guide, Client Status Events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.expressions import to_text
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.topics.system.event_topic import EventField, EventMessageTypes, EventTopic

if TYPE_CHECKING:
    from server.engine.hooks import Hooks
    from server.expressions.tree import Expr
    from server.topics.subscriptions.client import ClientIdentity
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock

CLIENT_STATUS: Final = "/AMPS/ClientStatus"

_FIELDS: Final = (
    EventField("timestamp", "Timestamp", "20065"),
    EventField("event", "Event", "20066"),
    EventField("client_name", "ClientName", "20067"),
    EventField("connection_name", "ConnName", "20071"),
    EventField("correlation_id", "CorrelationID", "20074"),
    EventField("query_id", "QId", "20073"),
    EventField("topic", "Tpc", "20068"),
    EventField("filter", "Filter", "20069"),
    EventField("options", "Options", "20072"),
    EventField("sub_id", "SubId", "20070"),
    EventField("auth_id", "AuthId", "20081"),
    EventField("entitlement_filter", "EntitlementFilter", "20082"),
)
_FIELDS_OF_CONNECTIONS: Final = (
    EventField("client_address", "ClientAddr", "20080"),
    EventField("reason", "Reason", "20062"),
)
"""Fields that are left out where they do not apply; the others are NULL then."""


class ClientStatus:
    """Publishes the actions of clients.

    Args:
        topics: finds subscribers.
        types: the message types to build events in.
        clock: the clock.
        hooks: notified of the same events.
    """

    def __init__(
        self, topics: TopicTable, types: EventMessageTypes, clock: Clock, hooks: Hooks
    ) -> None:
        self._hooks = hooks
        self._event_topic = EventTopic(topics, types, CLIENT_STATUS, "ClientStatus")
        self._clock = clock

    def has_recipients(self, event: str) -> bool:
        """Return whether an event has any recipient: worth testing before its fields are made."""
        return self._event_topic.has_recipients or self._hooks.has_client_watchers(event)

    def publish(self, event: str, client: ClientIdentity, **details: str | Expr | None) -> None:
        """Publish an action of a client.

        Args:
            event: the action: a command, `connect` or `disconnect`.
            client: the client.
            **details: further fields, by their names in JSON. Expressions are written out if the
                event has a recipient.
        """
        if not self.has_recipients(event):
            return
        is_watched = self._hooks.has_client_watchers(event)
        texts = {
            name: detail if detail is None or isinstance(detail, str) else to_text(detail)
            for name, detail in details.items()
        }
        if is_watched:
            self._hooks.notify_client_watchers(event, client, texts)
        now = self._clock.now()
        values = {
            "timestamp": iso_timestamp(now),
            "event": event,
            "client_name": client.client_name,
            "connection_name": client.connection_name,
            "auth_id": client.user or None,
        } | texts
        fields = [*_FIELDS, *(field for field in _FIELDS_OF_CONNECTIONS if field.name in values)]
        for listener in self._event_topic.listeners():
            self._event_topic.publish(listener, fields, values, now)
