"""amps-action-on-connect-incoming-replication: an upstream instance has connected."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnConnectIncomingReplication(TriggerWithoutSubject):
    """Runs when an upstream instance connects."""

    subject: ClassVar[str] = "replication"
