"""Triggers on records that leave: on-oof-message, on-sow-delete-message, on-sow-expire-message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from actions.context import message_variables
from actions.records import OnRecords, matching_types, removed_record_variables
from server.topics.subscriptions.delivery.record_delivery import DELETED, EXPIRED, MATCH
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.queues.topic.browser import UnacknowledgedMessage
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage


_REASONS: Final[Mapping[str, frozenset[str]]] = {
    "match": frozenset({MATCH}),
    "delete": frozenset({DELETED}),
    "expire": frozenset({EXPIRED}),
    "all": frozenset({MATCH, DELETED, EXPIRED}),
}


class OnOofMessage(OnRecords):
    """Runs when a record leaves the focus of a filter."""

    def message_types(self) -> list[str]:
        """Return the message types that the option, a regular expression, matches."""
        return matching_types(self.options.get("MessageType") or "", self.services)

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run, if the record left for a selected reason."""
        if message.reason not in _REASONS[(self.options.get("Type") or "all").strip().lower()]:
            return
        previous = message.previous or b""
        self.action.post(
            message_variables(topic, body)
            | {
                "AMPS_PREVIOUS_DATA": previous,
                "AMPS_PREVIOUS_DATA_LENGTH": b"%d" % len(previous),
            }
        )


class OnSowDeleteMessage(OnRecords):
    """Runs for each record that is deleted from a topic."""

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run, if the record was deleted."""
        if message.reason == DELETED:
            self.action.post(removed_record_variables(topic, body, message))


_TIME_LIMIT: Final = "time_limit"
"""The reason for which records expire; the others are for messages of queues."""


class OnSowExpireMessage(OnRecords):
    """Runs for each record that expires from a topic.

    For a queue it runs for all messages that leave without having been acknowledged, after any
    number of deliveries (AMPS User Guide, On SOW Message Expiration).
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._remove_listener: Callable[[], None] | None = None

    def provision(self, services: ActionServices, action: Action) -> None:
        """Subscribe to the topic, or listen to the queue."""
        queues = services.engine.topics.queues
        topic, message_type = self.options.get("Topic"), self.options.get("MessageType")
        queue = None if queues is None else queues.find(message_type or "", topic or "")
        if queue is None:
            super().provision(services, action)
            return
        self.services, self.action = services, action
        name = queue.name
        self._remove_listener = queue.browser.add_removal_callback(
            lambda message: self._on_unacknowledged(name, message)
        )

    def close(self) -> None:
        """Unsubscribe, and remove the queue's callback."""
        super().close()
        if self._remove_listener is not None:
            self._remove_listener()
            self._remove_listener = None

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run, if the record expired, and for a selected reason."""
        if message.reason == EXPIRED:
            self._post_if_selected((_TIME_LIMIT,), removed_record_variables(topic, body, message))

    def _on_unacknowledged(self, queue: str, message: UnacknowledgedMessage) -> None:
        values = message_variables(queue, message.body)
        values["AMPS_CORRELATION_ID"] = text_to_bytes(message.correlation_id)
        self._post_if_selected(message.removal.reasons, values)

    def _post_if_selected(self, reasons: Iterable[str], values: dict[str, bytes]) -> None:
        """Run, if one of the reasons is selected."""
        option = self.options.get("Reason")
        if option is not None:
            selected_reasons = {reason.strip().lower() for reason in option.split(",")}
            if selected_reasons.isdisjoint(reasons):
                return
        self.action.post(values | {"AMPS_REASON": text_to_bytes(",".join(reasons))})
