"""amps-action-on-connect-replication: a destination is connected."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnConnectReplication(OnLink):
    """Runs when a destination is connected."""

    event: ClassVar[LinkEvent] = LinkEvent.CONNECT
