"""amps-action-on-downgrade-replication: a destination is acknowledged for asynchronously."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnDowngradeReplication(TriggerWithoutSubject):
    """Runs when a destination is downgraded."""

    subject: ClassVar[str] = "replication"
