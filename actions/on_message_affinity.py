"""amps-action-on-message-affinity: a record is assigned to a client, or taken from it.

The subscribers of the control topic share the work on the records of the data topic. Assignments
are posted at the pace of the action, so that a client that leaves with many records does not
flood its queue.
Source: AMPS User Guide, On Message Affinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from actions.message_affinity import MessageAffinities
from actions.records import OnRecords
from actions.subscription_triggers import SUBSCRIBE_EVENTS
from server.expressions.topic_names import TopicError, select_topics
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.action import Action
    from actions.message_affinity import AffinityAssignment, AffinityOwner
    from actions.services import ActionServices
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
        self._control_subscriptions: dict[
            AffinityOwner, set[str | None]
        ] = {}  # to the control topic
        self._is_posting_paused = False

    def provision(self, services: ActionServices, action: Action) -> None:
        """Follow the records, and the subscriptions to the control topic."""
        super().provision(services, action)
        for record in self.matching_records():
            self._affinities.add_record((record.topic, record.key), _MATCH)
        for event in SUBSCRIBE_EVENTS:
            services.engine.hooks.watch_clients(event, self._on_subscribe)
        services.engine.hooks.watch_clients("unsubscribe", self._on_unsubscribe)

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `MessageSink`
        """Queue a matching record for assignment to a client."""
        self._affinities.add_record((topic, message.key), _MATCH)
        self._post_pending()

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Unassign a record that does not match any more."""
        assignment = self._affinities.remove_record((topic, message.key), _OOF)
        if assignment is not None:
            self._post_assignment(assignment, body)

    def _on_subscribe(self, client: ClientIdentity, details: Mapping[str, str | None]) -> None:
        if client.message_type != self.options.get("MessageType"):
            return
        if self._selects_control_topic(details["topic"] or ""):
            owner = client.number, client.client_name
            self._control_subscriptions.setdefault(owner, set()).add(details["sub_id"])
            self._affinities.add_client(owner)
            self._post_pending()
        else:  # it may have replaced one to the control topic
            self._on_unsubscribe(client, details)

    def _on_unsubscribe(self, client: ClientIdentity, details: Mapping[str, str | None]) -> None:
        owner = client.number, client.client_name
        subscriptions = self._control_subscriptions.get(owner)
        if subscriptions is None:
            return
        subscriptions.discard(details["sub_id"])
        if not subscriptions:
            del self._control_subscriptions[owner]
            self._affinities.remove_client(owner, _UNSUBSCRIBE)
            self._post_pending()

    def _selects_control_topic(self, topic: str) -> bool:
        control = self.options.get("ControlTopic") or ""
        literal = not self.services.engine.settings.regex_topics
        try:
            return topic == control or select_topics(topic, literal=literal).matches(control)
        except TopicError:
            return False

    def _post_pending(self) -> None:
        """Post the pending assignments, until the action is busy."""
        while not self.action.is_busy:
            assignment = self._affinities.next_change()
            if assignment is None:
                return
            self._post_assignment(assignment, self.current_body(*assignment.record) or b"")
        if not self._is_posting_paused:
            self._is_posting_paused = True
            self.services.engine.clock.call_later(_PAUSE, self._resume_posting)

    def _resume_posting(self) -> None:
        self._is_posting_paused = False
        self._post_pending()

    def _post_assignment(self, assignment: AffinityAssignment, body: bytes) -> None:
        self.action.post(
            {
                "AMPS_DATA": body,
                "AMPS_CLIENT_NAME": text_to_bytes(assignment.client[1]),
                "AMPS_AFFINITY_ACTION": b"assign" if assignment.is_assignment else b"unassign",
                "AMPS_AFFINITY_REASON": text_to_bytes(assignment.reason),
            }
        )
