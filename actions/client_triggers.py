"""Triggers on clients: on-connect-client, -logon-client, -disconnect-client, -offline-start, -stop.

A slow client is offline while messages for it are written to disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Trigger
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.action import Action
    from actions.services import ActionServices
    from server.topics.subscriptions.client import ClientIdentity


class OnClient(Trigger):
    """Runs on an event of a client.

    Attributes:
        event: the event.
        includes_user: true if the variables include the authenticated user.
    """

    event: ClassVar[str]
    includes_user: ClassVar[bool] = False

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event."""
        includes_user = self.includes_user

        def watch(client: ClientIdentity, _details: Mapping[str, str | None]) -> None:
            action.post(client_variables(client, with_user=includes_user))

        self.end_later(services.engine.hooks.watch_clients(self.event, watch))


def client_variables(client: ClientIdentity, *, with_user: bool) -> dict[str, bytes]:
    """Return the variables that identify a client."""
    values = {
        "AMPS_CLIENT_NAME": text_to_bytes(client.client_name),
        "AMPS_CONNECTION_NAME": text_to_bytes(client.connection_name),
    }
    if with_user:
        values["AMPS_AUTHENTICATION_ID"] = text_to_bytes(client.user)
    return values


class OnConnectClient(OnClient):
    """Runs when a client connects."""

    event = "connect"


class OnLogonClient(OnClient):
    """Runs when a client logs on."""

    event = "logon"
    includes_user = True


class OnDisconnectClient(OnClient):
    """Runs when a client disconnects."""

    event = "disconnect"
    includes_user = True


class OnOfflineStart(OnClient):
    """Runs when a slow client goes offline."""

    event = "offline_start"


class OnOfflineStop(OnClient):
    """Runs when a slow client has caught up."""

    event = "offline_stop"
