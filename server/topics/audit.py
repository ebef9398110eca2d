"""/AMPS/Audit: who has logged on, what was refused, and who has had what done.

Each event is an entry of the log, too. Refusals can be caused by anybody, in any number: of each
user at each host only some are said in a minute, in both places.

An extension: AMPS does not have this topic. Where the same is meant, fields are called as those of
/AMPS/ClientStatus are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.base.complaints import Complaints, host_of
from server.expressions.topic_names import AUDIT
from server.subscriptions.envelope import iso_timestamp
from server.topics.events import EventField, EventTopic, EventTypes

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.topics.table import TopicTable

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


class Party(NamedTuple):
    """Who is concerned.

    Attributes:
        user: the user, as whom somebody is known or claims to be; empty for nobody in particular.
        address: the peer's.
        transport: the name of the transport.
        client_name: the name that the client gives itself; empty where there is none.
        module: what decides on logons there.
    """

    user: str
    address: str
    transport: str
    client_name: str = ""
    module: str = ""


NOBODY: Final = Party("", "", "")
"""What the instance does of its own accord is done by nobody."""


class Audit:
    """Says what those must know who answer for an instance.

    Args:
        topics: where subscribers are found.
        types: what events are built in.
        clock: tells when.
        log: where the same is written.
    """

    def __init__(self, topics: TopicTable, types: EventTypes, clock: Clock, log: Log) -> None:
        self._events = EventTopic(topics, types, AUDIT, "Audit")
        self._clock = clock
        self._log = log
        self._complaints = Complaints(log, clock.call_later)

    def logged_on(self, party: Party, reason: str) -> None:
        """Somebody has logged on.

        Args:
            party: who.
            reason: what the module has said of that.
        """
        fields = _fields(party, reason=reason)
        self._log.emit("25-0080", **fields)
        self._publish("logon", fields)

    def logon_refused(self, party: Party, reason: str) -> None:
        """Somebody must not log on.

        Args:
            party: who.
            reason: why; it may be what the client is not told.
        """
        self._complain("25-0081", "logon_refused", party, reason=reason)

    def refused(self, party: Party, action: str, resource: str, rule: str) -> None:
        """A user must not do something.

        Args:
            party: who.
            action: what they wanted to do.
            resource: to what: a topic, a path.
            rule: what says so.
        """
        self._complain("25-0082", "refused", party, action=action, resource=resource, reason=rule)

    def acted(self, party: Party, action: str, resource: str) -> None:
        """Something is done to the instance.

        Args:
            party: who has that done; no address if it is the instance itself.
            action: what is done.
            resource: what for, or to what.
        """
        fields = _fields(party, action=action, resource=resource)
        self._log.emit("25-0083", **fields)
        self._publish("action", fields)

    def complain(self, message_id: str, party: Party, /, **fields: str) -> None:
        """Write an entry to the log alone, unless there have been many of its kind.

        Args:
            message_id: its id in the catalogue.
            party: who causes it; they need not have logged on.
            fields: its fields.
        """
        self._complaints.emit(message_id, host_of(party.address), **fields)

    def _complain(self, message_id: str, event: str, party: Party, **more: str) -> None:
        fields = _fields(party, **more)
        who = f"{party.user!r} at {host_of(party.address)}"
        if self._complaints.emit(message_id, who, **fields):
            self._publish(event, fields)

    def _publish(self, event: str, fields: dict[str, str]) -> None:
        listeners = self._events.listeners()
        if not listeners:
            return
        now = self._clock.now()
        values = {name: text or None for name, text in fields.items()}
        values |= {"timestamp": iso_timestamp(now), "event": event}
        for listener in listeners:
            self._events.publish(listener, _FIELDS, values, now)


def _fields(party: Party, **more: str) -> dict[str, str]:
    return {
        "auth_id": party.user,
        "client_address": party.address,
        "client_name": party.client_name,
        "transport": party.transport,
        "module": party.module,
    } | more
