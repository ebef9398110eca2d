"""Triggers on links with other instances: those of replication, in both directions.

Source: AMPS User Guide, On Incoming Replication Connections; On Outgoing Replication Connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Trigger
from server.replication.links.link_events import LinkEvent
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices
    from server.replication.links.link_events import LinkDirection, LinkEvent


class OnLink(Trigger):
    """Runs on an event of a link.

    Attributes:
        event: the event.
        is_incoming: true for links over which messages come here.
    """

    event: ClassVar[LinkEvent]
    is_incoming: ClassVar[bool] = False

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event; an instance without replication has none."""
        if services.replication is None:
            return
        with_transport = not self.is_incoming

        def watch(direction: LinkDirection) -> None:
            action.post(_variables(direction, with_transport=with_transport))

        self.end_later(services.replication.events.watch(self.event, watch))


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


class OnConnectReplication(OnLink):
    """Runs when a destination is connected."""

    event: ClassVar[LinkEvent] = LinkEvent.CONNECT


class OnDisconnectReplication(OnLink):
    """Runs when a destination is disconnected."""

    event: ClassVar[LinkEvent] = LinkEvent.DISCONNECT


class OnConnectIncomingReplication(OnLink):
    """Runs when an upstream instance connects."""

    event: ClassVar[LinkEvent] = LinkEvent.CONNECT_INCOMING
    is_incoming: ClassVar[bool] = True


class OnDisconnectIncomingReplication(OnLink):
    """Runs when an upstream instance disconnects."""

    event: ClassVar[LinkEvent] = LinkEvent.DISCONNECT_INCOMING
    is_incoming: ClassVar[bool] = True


class OnUpgradeReplication(OnLink):
    """Runs when a destination is upgraded."""

    event: ClassVar[LinkEvent] = LinkEvent.UPGRADE


class OnDowngradeReplication(OnLink):
    """Runs when a destination is downgraded."""

    event: ClassVar[LinkEvent] = LinkEvent.DOWNGRADE


class OnReplicationResyncComplete(OnLink):
    """Runs when a destination has caught up."""

    event: ClassVar[LinkEvent] = LinkEvent.RESYNC_COMPLETE
