"""amps-action-on-sow-expire-message: a record has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actions.records import OnRecords, leaving_variables
from server.subscriptions.record_delivery import EXPIRED

if TYPE_CHECKING:
    from server.subscriptions.record_delivery import RecordMessage

_TIME_LIMIT: Final = "time_limit"
"""The reason for which records expire; the others are for messages of queues."""


class OnSowExpireMessage(OnRecords):
    """Runs for each record that expires from a topic."""

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run, if the record expired, and for a reason that is asked for."""
        reasons = self.options.get("Reason")
        if message.reason != EXPIRED or (
            reasons is not None
            and _TIME_LIMIT not in (word.strip().lower() for word in reasons.split(","))
        ):
            return
        values = leaving_variables(topic, body, message)
        self.action.post(values | {"AMPS_REASON": _TIME_LIMIT.encode()})
