"""/AMPS/Audit: logons, refusals, and actions on the instance, with the users responsible.

Each event is also an entry of the log. Any peer can cause refusals, in any number. They are
therefore rate-limited per minute for each user at each host, in both places.

An extension: AMPS does not have this topic. Fields with the same meaning as those of
/AMPS/ClientStatus have the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.expressions.topic_names import AUDIT
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.topics.system.event_topic import EventField, EventMessageTypes, EventTopic
from server.util.rate_limited_log import RateLimitedLog, host_of

if TYPE_CHECKING:
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_FIELDS: Final = (
    EventField("timestamp", "Timestamp", "20065"),
    EventField("event", "Event", "20066"),
    EventField("auth_id", "AuthId", "20081"),
    EventField("client_address", "ClientAddr", "20080"),
    EventField("client_name", "ClientName", "20067"),
    EventField("transport", "Transport", "20091"),
    EventField("module", "Module", "20092"),
    EventField("action", "Action", "20093"),
    EventField("resource", "Resource", "20094"),
    EventField("reason", "Reason", "20062"),
)


class AuditActor(NamedTuple):
    """The user or instance that an audit event is about.

    Attributes:
        user: the user that the peer is known as or claims to be; empty if none in particular.
        address: the peer's address.
        transport: the name of the transport.
        client_name: the name that the client gives itself; empty if there is none.
        module: the module that decides on logons there.
    """

    user: str
    address: str
    transport: str
    client_name: str = ""
    module: str = ""


INSTANCE_ACTOR: Final = AuditActor("", "", "")
"""The actor of actions that the instance itself initiates."""


class Audit:
    """Publishes the events that operators responsible for an instance have to know.

    Args:
        topics: finds subscribers.
        types: the message types to build events in.
        clock: the clock.
        log: receives the same events.
    """

    def __init__(
        self, topics: TopicTable, types: EventMessageTypes, clock: Clock, log: ServerLog
    ) -> None:
        self._event_topic = EventTopic(topics, types, AUDIT, "Audit")
        self._clock = clock
        self._log = log
        self._rate_limited_log = RateLimitedLog(log, clock)

    def report_logon(self, actor: AuditActor, reason: str) -> None:
        """Report a logon.

        Args:
            actor: the client.
            reason: the module's explanation.
        """
        fields = _fields(actor, reason=reason)
        self._log.emit("25-0080", **fields)
        self._publish("logon", fields)

    def report_refused_logon(self, actor: AuditActor, reason: str) -> None:
        """Report a refused logon.

        Args:
            actor: the client.
            reason: the reason; it may contain details that the client does not get.
        """
        self._report_rate_limited("25-0081", "logon_refused", actor, reason=reason)

    def report_refusal(self, actor: AuditActor, action: str, resource: str, rule: str) -> None:
        """Report a refused action of a user.

        Args:
            actor: the user.
            action: the attempted action.
            resource: the object of the action: a topic, a path.
            rule: the rule that forbids it.
        """
        self._report_rate_limited(
            "25-0082", "refused", actor, action=action, resource=resource, reason=rule
        )

    def report_action(self, actor: AuditActor, action: str, resource: str) -> None:
        """Report an action on the instance.

        Args:
            actor: the initiator; no address if it is the instance itself.
            action: the action.
            resource: the purpose or the object of the action.
        """
        fields = _fields(actor, action=action, resource=resource)
        self._log.emit("25-0083", **fields)
        self._publish("action", fields)

    def log_rate_limited(self, message_id: str, actor: AuditActor, /, **fields: str) -> None:
        """Write an entry to the log alone, unless there have been many of its kind.

        Args:
            message_id: its id in the catalogue.
            actor: its cause; it need not have logged on.
            fields: its fields.
        """
        self._rate_limited_log.emit(message_id, host_of(actor.address), **fields)

    def _report_rate_limited(
        self, message_id: str, event: str, actor: AuditActor, **details: str
    ) -> None:
        fields = _fields(actor, **details)
        peer = f"{actor.user!r} at {host_of(actor.address)}"
        if self._rate_limited_log.emit(message_id, peer, **fields):
            self._publish(event, fields)

    def _publish(self, event: str, fields: dict[str, str]) -> None:
        listeners = self._event_topic.listeners()
        if not listeners:
            return
        now = self._clock.now()
        values = {name: text or None for name, text in fields.items()}
        values |= {"timestamp": iso_timestamp(now), "event": event}
        for listener in listeners:
            self._event_topic.publish(listener, _FIELDS, values, now)


def _fields(actor: AuditActor, **details: str) -> dict[str, str]:
    return {
        "auth_id": actor.user,
        "client_address": actor.address,
        "client_name": actor.client_name,
        "transport": actor.transport,
        "module": actor.module,
    } | details
