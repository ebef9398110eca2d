"""amps-action-on-message-condition-timeout: a record has matched a filter for too long."""

from actions.tracked_records import OnTrackedRecords


class OnMessageConditionTimeout(OnTrackedRecords):
    """Runs once for each record that matches a filter for a duration."""
