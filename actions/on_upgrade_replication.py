"""amps-action-on-upgrade-replication: a destination acknowledges synchronously again."""

from typing import ClassVar

from actions.links import OnLink
from server.replication.links.link_events import LinkEvent


class OnUpgradeReplication(OnLink):
    """Runs when a destination is upgraded."""

    event: ClassVar[LinkEvent] = LinkEvent.UPGRADE
