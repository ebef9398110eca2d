"""The instances that the page may query besides its own: those that this one replicates with.

A browser may reach an instance that this one cannot reach, and vice versa, so the replication page
itself queries each instance for its readiness. A page may connect only to the addresses that its
policy names when it is loaded: instances reported later are queried only after a reload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.statistics.resources import MESH_INSTANCES

if TYPE_CHECKING:
    from server.statistics.sample import StatisticsSnapshot


def mesh_addresses(snapshot: StatisticsSnapshot | None) -> list[str]:
    """Return the addresses of other instances' admin interfaces, as in http://host:8085.

    Args:
        snapshot: the latest statistics; None before the first sample.
    """
    if snapshot is None:
        return []
    names = [field.name for field in MESH_INSTANCES.fields]
    instances = (
        dict(zip(names, values, strict=True))
        for values in snapshot.entries.get(MESH_INSTANCES.path, {}).values()
    )
    return [
        f"{instance['admin_scheme']}://{instance['admin_addr']}"
        for instance in instances
        if instance["admin_addr"] and not instance["is_this"]
    ]
