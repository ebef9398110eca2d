"""amps-action-do-downgrade-replication: destinations that fall behind are not waited for."""

from typing import ClassVar

from actions.without_subject import StepWithoutSubject


class DoDowngradeReplication(StepWithoutSubject):
    """Downgrades destinations."""

    name: ClassVar[str] = "amps-action-do-downgrade-replication"
    subject: ClassVar[str] = "replication"
    intervals: ClassVar[tuple[str, ...]] = ("Age", "GracePeriod")
