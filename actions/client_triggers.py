"""Triggers on clients: on-connect-client, -logon-client, -disconnect-client, -offline-start, -stop.

A slow client is offline while messages for it are written to disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Trigger
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.topics.subscriptions.client import ClientIdentity


class OnClient(Trigger):
    """Runs on an event of a client.

    Args:
        options: the options.
        event: the event.
        includes_user: true if the variables include the authenticated user.
    """

    def __init__(self, options: Options, event: str, *, includes_user: bool = False) -> None:
        super().__init__(options)
        self._event = event
        self._includes_user = includes_user

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event."""

        def watch(client: ClientIdentity, _details: Mapping[str, str | None]) -> None:
            action.post(client_variables(client, with_user=self._includes_user))

        self.end_later(services.engine.hooks.watch_clients(self._event, watch))


def client_variables(client: ClientIdentity, *, with_user: bool) -> dict[str, bytes]:
    """Return the variables that identify a client."""
    values = {
        "AMPS_CLIENT_NAME": text_to_bytes(client.client_name),
        "AMPS_CONNECTION_NAME": text_to_bytes(client.connection_name),
    }
    if with_user:
        values["AMPS_AUTHENTICATION_ID"] = text_to_bytes(client.user)
    return values
