"""amps-action-on-oof-message: a record has left the focus of a filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from actions.messages import message_variables
from actions.records import OnRecords, matching_types
from server.topics.subscriptions.delivery.record_delivery import DELETED, EXPIRED, MATCH

if TYPE_CHECKING:
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
