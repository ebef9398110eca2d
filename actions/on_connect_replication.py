"""amps-action-on-connect-replication: a destination is connected."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnConnectReplication(TriggerWithoutSubject):
    """Runs when a destination is connected."""

    subject: ClassVar[str] = "replication"
