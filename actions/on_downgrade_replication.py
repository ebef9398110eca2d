"""amps-action-on-downgrade-replication: a destination is acknowledged for asynchronously."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnDowngradeReplication(OnLink):
    """Runs when a destination is downgraded."""

    event: ClassVar[LinkEvent] = LinkEvent.DOWNGRADE
