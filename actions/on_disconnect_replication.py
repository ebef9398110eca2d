"""amps-action-on-disconnect-replication: a destination is disconnected."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnDisconnectReplication(OnLink):
    """Runs when a destination is disconnected."""

    event: ClassVar[LinkEvent] = LinkEvent.DISCONNECT
