"""amps-action-do-upgrade-replication: destinations that have caught up are waited for."""

from typing import ClassVar

from actions.without_subject import StepWithoutSubject


class DoUpgradeReplication(StepWithoutSubject):
    """Upgrades destinations."""

    name: ClassVar[str] = "amps-action-do-upgrade-replication"
    subject: ClassVar[str] = "replication"
    intervals: ClassVar[tuple[str, ...]] = ("Age", "GracePeriod")
