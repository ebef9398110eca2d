"""amps-action-on-replication-resync-complete: a destination has caught up with the log."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnReplicationResyncComplete(TriggerWithoutSubject):
    """Runs when a destination has caught up."""

    subject: ClassVar[str] = "replication"
