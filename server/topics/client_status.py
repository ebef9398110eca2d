"""/AMPS/ClientStatus: what clients do.

Source: AMPS User Guide, Client Status Events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.expressions import to_text
from server.subscriptions.envelope import iso_timestamp
from server.topics.events import EventField, EventTopic, EventTypes

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.core.hooks import Hooks
    from server.core.session import Session
    from server.expressions.tree import Expr
    from server.topics.table import TopicTable

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
        hooks: told of the same.
    """

    def __init__(self, topics: TopicTable, types: EventTypes, clock: Clock, hooks: Hooks) -> None:
        self._hooks = hooks
        self._events = EventTopic(topics, types, CLIENT_STATUS, "ClientStatus")
        self._clock = clock

    def publish(self, event: str, session: Session, **details: str | Expr | None) -> None:
        """Say that a client has done something.

        Args:
            event: what it has done: a command, `connect` or `disconnect`.
            session: the client.
            **details: further fields, by their names in JSON. Expressions are written out if
                anybody listens.
        """
        listeners = self._events.listeners()
        is_watched = self._hooks.watches_clients(event)
        if not (listeners or is_watched):
            return
        texts = {
            name: detail if detail is None or isinstance(detail, str) else to_text(detail)
            for name, detail in details.items()
        }
        if is_watched:
            self._hooks.tell(event, session, texts)
        now = self._clock.now()
        values = {
            "timestamp": iso_timestamp(now),
            "event": event,
            "client_name": session.client_name,
            "connection_name": session.connection_name,
            "auth_id": session.user or None,
        } | texts
        fields = [*_FIELDS, *(field for field in _FIELDS_OF_CONNECTIONS if field.name in values)]
        for listener in listeners:
            self._events.publish(listener, fields, values, now)
