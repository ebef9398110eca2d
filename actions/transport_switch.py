"""Steps that stop transports and let them listen again.

They are amps-action-do-disable-transport and amps-action-do-enable-transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError
from actions.options import optional
from server.transports.listener import TransportError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class SwitchTransport(Step):
    """Enables or disables one transport, or all of them.

    Args:
        options: the options.
        enabled: whether the transports listen from then on.
    """

    time_limit: ClassVar[float] = 60.0

    def __init__(self, options: StepOptions, *, enabled: bool) -> None:
        super().__init__(options)
        self._enabled = enabled
        self._transport = optional(options, "Transport")

    async def run(self, context: ActionContext) -> None:
        """Switch the configured transports.

        Raises:
            StepError: one of them does not exist or cannot be switched.
        """
        transports = self.services.transports
        names: tuple[str, ...] = transports.names
        if self._transport is not None:
            names = (self._transport.expand_text(context),)
        for name in names:
            try:
                await (transports.enable if self._enabled else transports.disable)(name)
            except TransportError as error:
                raise StepError(str(error)) from None
