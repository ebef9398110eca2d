"""amps-action-do-downgrade-replication: destinations that fall behind are not waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.sync_types import ChangeSyncType

if TYPE_CHECKING:
    from server.replication.links.replication_state import ReplicationState


class DoDowngradeReplication(ChangeSyncType):
    """Downgrades destinations."""

    def change_sync_types(self, replication: ReplicationState, age_us: int) -> None:
        """Downgrade the destinations with an unacknowledged entry older than `age_us`."""
        replication.downgrade_late(age_us)
