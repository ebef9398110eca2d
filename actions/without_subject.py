"""Modules whose subject does not exist yet: they are checked like any other, and have no effect.

An action goes on behind such a step. What stands there (rotating logs, removing files) is what
keeps an instance running, and would have followed if the step had had something to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, Trigger
from actions.options import optional, quantity
from config_schema.units import parse_interval

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Runnable, Services


class TriggerWithoutSubject(Trigger):
    """Never runs.

    Attributes:
        subject: what does not exist yet.
    """

    subject: ClassVar[str]

    def provision(self, services: Services, action: Runnable) -> None:
        """Say so."""
        services.engine.log.emit("29-0111", action=action.title, subject=self.subject)


class StepWithoutSubject(Step):
    """Does nothing but say so.

    Attributes:
        name: the module's name.
        subject: what does not exist yet.
        intervals: the options that are intervals.
    """

    name: ClassVar[str]
    subject: ClassVar[str]
    intervals: ClassVar[tuple[str, ...]] = ()

    def provision(self, services: Services) -> None:
        """Take note of the log."""
        self._log = services.engine.log

    async def run(self, context: Context) -> None:
        """Say that this has no effect.

        Raises:
            StepFailed: an interval is none, now that its variables are filled in.
        """
        for name in self.intervals:
            template = optional(self.options, name)
            if template is not None:
                quantity(name, template, context, parse_interval)
        self._log.emit("29-0109", module=self.name, subject=self.subject)
