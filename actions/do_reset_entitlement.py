"""amps-action-do-reset-entitlement: what is kept about permissions is forgotten.

Whom that concerns is disconnected, so that whoever comes again has the permissions of then. A
client without an authentication id is only concerned where everybody is: an AuthenticationId that
turns out to be empty, as with a variable that has no value, is nobody's.

Source: AMPS User Guide, Manage Security; Entitlement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepFailed
from actions.options import optional
from actions.resets import reset_entitlement

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services
    from actions.step_options import StepOptions


class DoResetEntitlement(Step):
    """Has every permission asked for afresh, and disconnects whom that concerns."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._transport = optional(options, "Transport")
        self._user = optional(options, "AuthenticationId")

    def provision(self, services: Services) -> None:
        """Take note of the engine and its transports."""
        self._engine = services.engine
        self._transports = services.transports

    async def run(self, context: Context) -> None:
        """Forget, and disconnect.

        Raises:
            StepFailed: there is no such transport.
        """
        transport = None if self._transport is None else self._transport.expand_text(context)
        user = None if self._user is None else self._user.expand_text(context)
        if transport is not None and transport not in self._transports.names:
            raise StepFailed(f"there is no transport {transport!r}")
        reset_entitlement(self._engine, transport, user)
