"""Modules whose subject does not exist yet: they are checked like any other, and have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Trigger

if TYPE_CHECKING:
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
