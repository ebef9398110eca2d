"""amps-action-do-reset-authentication: drops the cached results of earlier logons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step
from actions.reset import reset_authentication

if TYPE_CHECKING:
    from actions.context import ActionContext


class DoResetAuthentication(Step):
    """Discards the cached results of logons, so that every logon is decided again."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Discard the cached results."""
        reset_authentication(self.services.engine)
