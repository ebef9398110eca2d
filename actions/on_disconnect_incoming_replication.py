"""amps-action-on-disconnect-incoming-replication: an upstream instance has disconnected."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnDisconnectIncomingReplication(TriggerWithoutSubject):
    """Runs when an upstream instance disconnects."""

    subject: ClassVar[str] = "replication"
