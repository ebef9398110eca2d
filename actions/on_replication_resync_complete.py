"""amps-action-on-replication-resync-complete: a destination has caught up with the log."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnReplicationResyncComplete(OnLink):
    """Runs when a destination has caught up."""

    event: ClassVar[LinkEvent] = LinkEvent.RESYNC_COMPLETE
