"""amps-action-do-truncate-statistics: old statistics are removed."""

from typing import ClassVar

from actions.without_subject import StepWithoutSubject


class DoTruncateStatistics(StepWithoutSubject):
    """Removes old statistics."""

    name: ClassVar[str] = "amps-action-do-truncate-statistics"
    subject: ClassVar[str] = "the statistics database"
    intervals: ClassVar[tuple[str, ...]] = ("Age",)
