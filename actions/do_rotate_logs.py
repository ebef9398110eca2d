"""amps-action-do-rotate-logs: log files are closed and the next ones opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext


class DoRotateLogs(Step):
    """Continues file log targets in their next file."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Rotate the log files."""
        self.services.rotate_logs()
