"""amps-action-on-disconnect-replication: a destination is disconnected."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnDisconnectReplication(TriggerWithoutSubject):
    """Runs when a destination is disconnected."""

    subject: ClassVar[str] = "replication"
