"""amps-action-on-signal: the process has received a signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from actions.module import ModuleProvisionError, Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnSignal(Trigger):
    """Runs when the process receives a signal."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Handle the signal."""
        number = signal_of(self.options.get("Signal") or "")
        try:
            services.signals.add_handler(number, lambda: action.post({}, f"signal {number.name}"))
        except (OSError, RuntimeError, ValueError) as error:
            raise ModuleProvisionError(f"{number.name} cannot be handled: {error}") from None


def signal_of(name: str) -> signal.Signals:
    """Return the signal of a name that the configuration check has accepted."""
    return signal.Signals[name.strip().upper()]
