"""amps-action-on-connect-incoming-replication: an upstream instance has connected."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnConnectIncomingReplication(OnLink):
    """Runs when an upstream instance connects."""

    event: ClassVar[LinkEvent] = LinkEvent.CONNECT_INCOMING
    is_incoming: ClassVar[bool] = True
