"""amps-action-do-reset-entitlement: drops the cached permissions.

Affected clients are disconnected, so that they have the new permissions when they connect again.
A client without an authentication id is affected only if all clients are: an AuthenticationId that
expands to an empty text, as with a variable that has no value, matches no client.

Source: AMPS User Guide, Manage Security; Entitlement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepError
from actions.options import optional
from actions.reset import reset_entitlement

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoResetEntitlement(Step):
    """Discards all cached permissions, and disconnects the affected clients."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._transport = optional(options, "Transport")
        self._user = optional(options, "AuthenticationId")

    async def run(self, context: ActionContext) -> None:
        """Discard permissions, and disconnect clients.

        Raises:
            StepError: there is no such transport.
        """
        transport = None if self._transport is None else self._transport.expand_text(context)
        user = None if self._user is None else self._user.expand_text(context)
        if transport is not None and transport not in self.services.transports.names:
            raise StepError(f"there is no transport {transport!r}")
        reset_entitlement(self.services.engine, transport, user)
