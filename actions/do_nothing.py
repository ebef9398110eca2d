"""amps-action-do-nothing: for trying out an On."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext


class DoNothing(Step):
    """Does nothing; the log says that it ran."""

    async def run(self, context: ActionContext) -> None:
        """Do nothing."""
