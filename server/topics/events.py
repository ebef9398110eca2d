"""Event topics: what the server says about its clients, as messages in each client's own type.

An event is a message like any other: it can be filtered, and a regular expression may match its
topic. It is built once for each message type that somebody listens in.

Source: AMPS User Guide, Event Topics and Client Status Events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from server.message_types.base import Path, Value
from server.subscriptions.envelope import Envelope, iso_timestamp

if TYPE_CHECKING:
    from server.clock import Clock
    from server.hooks import Hooks
    from server.message_types.base import MessageType
    from server.session import Session
    from server.topics.table import TopicTable

CLIENT_STATUS: Final = "/AMPS/ClientStatus"

_FIELDS: Final = (  # name in JSON and its like, name in XML, tag in FIX
    ("timestamp", "Timestamp", "20065"),
    ("event", "Event", "20066"),
    ("client_name", "ClientName", "20067"),
    ("connection_name", "ConnName", "20071"),
    ("correlation_id", "CorrelationID", "20074"),
    ("query_id", "QId", "20073"),
    ("topic", "Tpc", "20068"),
    ("filter", "Filter", "20069"),
    ("options", "Options", "20072"),
    ("sub_id", "SubId", "20070"),
    ("auth_id", "AuthId", "20081"),
    ("entitlement_filter", "EntitlementFilter", "20082"),
)
_FIELDS_OF_CONNECTIONS: Final = (
    ("client_address", "ClientAddr", "20080"),
    ("reason", "Reason", "20062"),
)
"""Fields that are left out where they do not apply; the others are NULL then."""

_ROOT: Final = "ClientStatus"


class ClientStatus:
    """Publishes what clients do.

    Args:
        topics: where subscribers are found.
        message_types: the types that events are built in.
        modules: the module of each of these types, by the type's name: it decides on field names.
        clock: tells when.
        hooks: told of the same.
    """

    def __init__(
        self,
        topics: TopicTable,
        message_types: Mapping[str, MessageType],
        modules: Mapping[str, str],
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        self._hooks = hooks
        self._topics = topics
        self._clock = clock
        self._types = [
            (message_type, modules[name])
            for name, message_type in message_types.items()
            if message_type.capabilities.build and message_type.capabilities.events
        ]

    def publish(self, event: str, session: Session, **details: str | None) -> None:
        """Say that a client has done something.

        Args:
            event: what it has done: a command, `connect` or `disconnect`.
            session: the client.
            **details: further fields, by their names in JSON.
        """
        self._hooks.tell(event, session, details)
        listening = [
            (topic, message_type, module)
            for message_type, module in self._types
            if (topic := self._topics.find(message_type.name, CLIENT_STATUS)).has_subscriptions
        ]
        if not listening:
            return
        now = self._clock.now()
        values = {
            "timestamp": iso_timestamp(now),
            "event": event,
            "client_name": session.client_name,
            "connection_name": session.connection_name,
            "auth_id": session.user or None,
        } | details
        envelope = Envelope(None, now)
        for topic, message_type, module in listening:
            topic.publish([message_type.build(_fields(values, module))], envelope)


def _fields(values: Mapping[str, str | None], module: str) -> list[tuple[Path, Value]]:
    present = [*_FIELDS, *(field for field in _FIELDS_OF_CONNECTIONS if field[0] in values)]
    return list(_named(present, values, module))


def _named(
    fields: Iterable[tuple[str, str, str]], values: Mapping[str, str | None], module: str
) -> Iterable[tuple[Path, Value]]:
    for name, xml_name, tag in fields:
        value = values.get(name)
        if module == "xml":
            yield (_ROOT, xml_name), value
        elif module in ("fix", "nvfix"):
            if value is not None:
                yield (tag if module == "fix" else name,), value
        else:
            yield (_ROOT, name), value
