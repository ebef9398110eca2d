"""amps-action-on-upgrade-replication: a destination acknowledges synchronously again."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnUpgradeReplication(TriggerWithoutSubject):
    """Runs when a destination is upgraded."""

    subject: ClassVar[str] = "replication"
