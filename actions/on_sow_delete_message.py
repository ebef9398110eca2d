"""amps-action-on-sow-delete-message: a record has been deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.records import OnRecords, removed_record_variables
from server.topics.subscriptions.delivery.record_delivery import DELETED

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage


class OnSowDeleteMessage(OnRecords):
    """Runs for each record that is deleted from a topic."""

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run, if the record was deleted."""
        if message.reason == DELETED:
            self.action.post(removed_record_variables(topic, body, message))
