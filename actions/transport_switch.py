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
    from server.app.wiring.transport_table import TransportTable


class SwitchTransport(Step):
    """Switches one transport, or all of them."""

    time_limit: ClassVar[float] = 60.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._transport = optional(options, "Transport")

    async def switch_transport(self, transports: TransportTable, name: str) -> None:
        """Switch one transport.

        Raises:
            TransportError: there is none of this name, or it cannot be switched.
        """
        raise NotImplementedError

    async def run(self, context: ActionContext) -> None:
        """Switch the configured transports.

        Raises:
            StepError: one of them does not exist or cannot be switched.
        """
        names: tuple[str, ...] = self.services.transports.names
        if self._transport is not None:
            names = (self._transport.expand_text(context),)
        for name in names:
            try:
                await self.switch_transport(self.services.transports, name)
            except TransportError as error:
                raise StepError(str(error)) from None


class DoEnableTransport(SwitchTransport):
    """Enables one transport, or all of them."""

    async def switch_transport(self, transports: TransportTable, name: str) -> None:
        """Enable one transport."""
        await transports.enable(name)


class DoDisableTransport(SwitchTransport):
    """Disables one transport, or all of them."""

    async def switch_transport(self, transports: TransportTable, name: str) -> None:
        """Disable one transport."""
        await transports.disable(name)
