"""amps-action-on-message-affinity: a record is assigned to a client, or taken from it.

The subscribers of the control topic share the work on the records of the data topic. Assignments
are posted at the pace of the action, so that a client that leaves with many records does not
flood its queue.
Source: AMPS User Guide, On Message Affinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from actions.message_affinity import MessageAffinities
from actions.on_subscribe import OnSubscribe
from actions.records import OnRecords
from server.expressions.topic_names import TopicError, select_topics
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.message_affinity import AffinityAssignment, AffinityOwner
    from actions.services import ActionHandle, ActionServices
    from config_schema.spec import Options
    from server.topics.subscriptions.client import ClientIdentity
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage

_MATCH: Final = "match"
_OOF: Final = "oof"
_UNSUBSCRIBE: Final = "unsubscribe"
_PAUSE: Final = 0.01
"""Seconds between checks whether a busy action accepts runs again."""


class OnMessageAffinity(OnRecords):
    """Runs when a record is assigned to a client, or taken from it."""

    topic_option: ClassVar[str] = "DataTopic"
    filter_option: ClassVar[str] = "DataFilter"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._affinities = MessageAffinities()
        self._in_control: dict[AffinityOwner, set[str | None]] = {}  # to the control topic
        self._is_waiting = False

    def provision(self, services: ActionServices, action: ActionHandle) -> None:
        """Follow the records, and the subscriptions to the control topic."""
        super().provision(services, action)
        for record in self.matching():
            self._affinities.add((record.topic, record.key), _MATCH)
        for event in OnSubscribe.events:
            services.engine.hooks.watch_clients(event, self._subscribed)
        services.engine.hooks.watch_clients("unsubscribe", self._unsubscribed)

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `Sink`
        """Queue a matching record for assignment to a client."""
        self._affinities.add((topic, message.key), _MATCH)
        self._tell_all()

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Unassign a record that does not match any more."""
        assignment = self._affinities.drop((topic, message.key), _OOF)
        if assignment is not None:
            self._tell(assignment, body)

    def _subscribed(self, client: ClientIdentity, details: Mapping[str, str | None]) -> None:
        if client.message_type != self.options.get("MessageType"):
            return
        if self._is_control(details["topic"] or ""):
            who = client.number, client.client_name
            self._in_control.setdefault(who, set()).add(details["sub_id"])
            self._affinities.join(who)
            self._tell_all()
        else:  # it may have replaced one to the control topic
            self._unsubscribed(client, details)

    def _unsubscribed(self, client: ClientIdentity, details: Mapping[str, str | None]) -> None:
        who = client.number, client.client_name
        subscriptions = self._in_control.get(who)
        if subscriptions is None:
            return
        subscriptions.discard(details["sub_id"])
        if not subscriptions:
            del self._in_control[who]
            self._affinities.leave(who, _UNSUBSCRIBE)
            self._tell_all()

    def _is_control(self, topic: str) -> bool:
        control = self.options.get("ControlTopic") or ""
        literal = not self.services.engine.settings.regex_topics
        try:
            return topic == control or select_topics(topic, literal=literal).matches(control)
        except TopicError:
            return False

    def _tell_all(self) -> None:
        """Post the pending assignments, until the action is busy."""
        while not self.action.is_busy:
            assignment = self._affinities.next()
            if assignment is None:
                return
            self._tell(assignment, self.current(*assignment.record) or b"")
        if not self._is_waiting:
            self._is_waiting = True
            self.services.engine.clock.call_later(_PAUSE, self._tell_more)

    def _tell_more(self) -> None:
        self._is_waiting = False
        self._tell_all()

    def _tell(self, assignment: AffinityAssignment, body: bytes) -> None:
        self.action.post(
            {
                "AMPS_DATA": body,
                "AMPS_CLIENT_NAME": text_to_bytes(assignment.client[1]),
                "AMPS_AFFINITY_ACTION": b"assign" if assignment.begins else b"unassign",
                "AMPS_AFFINITY_REASON": text_to_bytes(assignment.reason),
            }
        )
