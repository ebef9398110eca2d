"""amps-action-on-admin: a request to the admin interface.

The parameters of the request are variables of the run, with their names as they are.
Source: AMPS User Guide, On a REST Request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Trigger
from actions.services import RequestedAction

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnAdmin(Trigger):
    """Runs on a request for its path below /amps/administrator/actions."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Register the action for requests to the admin interface."""
        get = self.options.get
        path = get("Path") or ""
        services.requested_actions.append(
            RequestedAction(
                path,
                get("Name") or path,
                get("Description") or "",
                self.options.all("RequiredParameter"),
                action.post,
            )
        )
