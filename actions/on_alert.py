"""amps-action-on-alert: a record has matched a filter for too long, or stopped before that."""

from __future__ import annotations

from actions.tracked_records import OnTrackedRecords
from server.util.encoding import text_to_bytes


class OnAlert(OnTrackedRecords):
    """Runs once for each record, with a variable for the cause."""

    def timeout_variables(self) -> dict[str, bytes]:
        """Return the variable of a record that matched for too long."""
        return self._event_variable("TimeoutEvent")

    def stop_variables(self) -> dict[str, bytes] | None:
        """Return the variable of a record that stopped matching in time."""
        return self._event_variable("OOFEvent")

    def _event_variable(self, option: str) -> dict[str, bytes]:
        get = self.options.get
        return {get("EventVariable") or "": text_to_bytes(get(option) or "")}
