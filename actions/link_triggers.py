"""Triggers on links with other instances: those of replication, in both directions.

Source: AMPS User Guide, On Incoming Replication Connections; On Outgoing Replication Connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actions.module import Trigger
from server.replication.links.link_events import LinkEvent
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.replication.links.link_events import LinkDirection

_INCOMING: Final = (LinkEvent.CONNECT_INCOMING, LinkEvent.DISCONNECT_INCOMING)
"""Events of links over which messages come here."""


class OnLink(Trigger):
    """Runs on an event of a link.

    Args:
        options: the options.
        event: the event.
    """

    def __init__(self, options: Options, event: LinkEvent) -> None:
        super().__init__(options)
        self._event = event

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event; an instance without replication has none."""
        if services.replication is None:
            return
        with_transport = self._event not in _INCOMING

        def watch(direction: LinkDirection) -> None:
            action.post(_variables(direction, with_transport=with_transport))

        self.end_later(services.replication.events.watch(self._event, watch))


def _variables(direction: LinkDirection, *, with_transport: bool) -> dict[str, bytes]:
    """Return the variables that identify a link."""
    values = {
        "AMPS_REPLICATION_PEER_NAME": text_to_bytes(direction.peer),
        "AMPS_REPLICATION_CLIENT_NAME": text_to_bytes(direction.client),
        "AMPS_REPLICATION_REMOTE_ADDRESS": text_to_bytes(direction.address),
        "AMPS_REPLICATION_GROUP_NAME": text_to_bytes(direction.group),
    }
    if with_transport:
        values["AMPS_REPLICATION_TRANSPORT_NAME"] = text_to_bytes(direction.transport)
    return values
