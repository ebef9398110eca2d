"""amps-action-on-disconnect-incoming-replication: an upstream instance has disconnected."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnDisconnectIncomingReplication(OnLink):
    """Runs when an upstream instance disconnects."""

    event: ClassVar[LinkEvent] = LinkEvent.DISCONNECT_INCOMING
    is_incoming: ClassVar[bool] = True
