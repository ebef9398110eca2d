"""amps-action-do-backup: makes a backup of the instance. Not in AMPS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError
from actions.options import optional, quantity, required
from config_schema.units import parse_count
from server.engine.maintenance.backup import BackupError
from server.storage.backup.catalogue import BackupRetention

if TYPE_CHECKING:
    from actions.context import ActionContext, VariableTemplate
    from actions.step_options import StepOptions


class DoBackup(Step):
    """Makes a backup, and removes the expired ones after that."""

    time_limit: ClassVar[float] = 86_400.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._directory = required(options, "Directory")
        self._keep = optional(options, "Keep")
        self._keep_days = optional(options, "KeepDays")

    async def run(self, context: ActionContext) -> None:
        """Make a backup.

        Raises:
            StepError: it failed, another one is being made, or an option has an invalid value.
        """
        retention = BackupRetention(
            _count("Keep", self._keep, context), _count("KeepDays", self._keep_days, context)
        )
        if self.services.backup is None:
            raise StepError("the instance is still starting")
        try:
            await self.services.backup.create(Path(self._directory.expand_text(context)), retention)
        except BackupError as error:
            raise StepError(f"the backup failed: {error}") from None


def _count(name: str, template: VariableTemplate | None, context: ActionContext) -> int | None:
    return None if template is None else quantity(name, template, context, parse_count)
