"""amps-action-do-query-sow: a variable gets the first record that a query finds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from actions.expressions import ExpressionText
from actions.internal_clients import body_of, client_of
from actions.module import Step, StepError
from actions.options import optional, topic_of
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions


class DoQuerySow(Step):
    """Sets a variable to the first record of a query's result, or to a default.

    Without a default, the variable keeps its value if no record is found.
    """

    time_limit: ClassVar[float] = 60.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._topic = topic_of(options)
        self._filter = ExpressionText(options.get("Filter") or "")
        self._order_by = optional(options, "OrderBy")
        self._command_options = optional(options, "Options")
        self._variable = options.get("CaptureData") or ""

    def provision(self, services: ActionServices) -> None:
        """Create the client."""
        self._client = client_of(services, self.options, "amps-action-do-query-sow")
        has_default = self.options.get("DefaultData") is not None
        self._default = body_of(services, self.options, "DefaultData") if has_default else None

    async def run(self, context: ActionContext) -> None:
        """Query, in slices between which messages are processed.

        Raises:
            StepError: the query is not valid.
        """
        order_by, options = self._order_by, self._command_options
        try:
            slices = self._client.find_first_record(
                self._topic.expand_text(context),
                self._filter.expand(context),
                None if order_by is None else order_by.expand_text(context),
                None if options is None else options.expand_text(context),
                literal=self._topic.is_literal,
            )
        except CommandRefusedError as refusal:
            raise StepError(str(refusal)) from None
        for body in slices:
            if body is not None:
                context[self._variable] = body
                return
            await asyncio.sleep(0)
        if self._default is not None:
            context[self._variable] = self._default.expand(context)
