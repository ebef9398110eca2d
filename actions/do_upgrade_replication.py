"""amps-action-do-upgrade-replication: destinations that have caught up are waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.sync_types import ChangeSyncType

if TYPE_CHECKING:
    from server.replication.links.replication_state import ReplicationState


class DoUpgradeReplication(ChangeSyncType):
    """Upgrades destinations."""

    def change_sync_types(self, replication: ReplicationState, age_us: int) -> None:
        """Upgrade the destinations without an unacknowledged entry as old as `age_us`."""
        replication.upgrade_recovered(age_us)
