"""amps-action-do-delete-sow: deletes records that match a filter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from actions.expressions import ExpressionText
from actions.internal_clients import client_of
from actions.module import Step, StepError
from actions.options import topic_of
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions

_ALL: Final = "1=1"


class DoDeleteSow(Step):
    """Deletes records, as a client would with sow_delete; without a Filter all of them.

    A Filter that is empty after its variables are filled in fails, and does not count as none.
    """

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._topic = topic_of(options)
        self._filter = ExpressionText(options.get("Filter") or _ALL)

    def provision(self, services: ActionServices) -> None:
        """Create the client."""
        self._client = client_of(services, self.options, "amps-action-do-delete-sow")

    async def run(self, context: ActionContext) -> None:
        """Delete.

        Raises:
            StepError: the topic keeps no records, or the filter cannot be used.
        """
        try:
            slices = self._client.delete_records(
                self._topic.expand_text(context),
                self._filter.expand(context),
                literal=self._topic.is_literal,
            )
            for _ in slices:
                await asyncio.sleep(0)
        except CommandRefusedError as refusal:
            raise StepError(str(refusal)) from None
