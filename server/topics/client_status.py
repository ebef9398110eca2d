"""/AMPS/ClientStatus: what clients do.

Source: AMPS User Guide, Client Status Events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from server.subscriptions.envelope import iso_timestamp
from server.topics.events import EventField, EventTopic, EventTypes

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.subscriptions.client import Client
    from server.topics.table import TopicTable

Tell: TypeAlias = "Callable[[str, Client, Mapping[str, str | None]], None]"
"""Takes an event, the client, and the event's details by their names in JSON."""

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
    """Publishes what clients do.

    Args:
        topics: where subscribers are found.
        types: what events are built in.
        clock: tells when.
        tell: told of the same.
    """

    def __init__(self, topics: TopicTable, types: EventTypes, clock: Clock, tell: Tell) -> None:
        self._tell = tell
        self._events = EventTopic(topics, types, CLIENT_STATUS, "ClientStatus")
        self._clock = clock

    def publish(self, event: str, client: Client, **details: str | None) -> None:
        """Say that a client has done something.

        Args:
            event: what it has done: a command, `connect` or `disconnect`.
            client: the client.
            **details: further fields, by their names in JSON.
        """
        self._tell(event, client, details)
        listeners = self._events.listeners()
        if not listeners:
            return
        now = self._clock.now()
        values = {
            "timestamp": iso_timestamp(now),
            "event": event,
            "client_name": client.client_name,
            "connection_name": client.connection_name,
            "auth_id": client.user or None,
        } | details
        fields = [*_FIELDS, *(field for field in _FIELDS_OF_CONNECTIONS if field.name in values)]
        for listener in listeners:
            self._events.publish(listener, fields, values, now)
