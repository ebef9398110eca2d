"""Whom the page may ask besides its own instance: those that this one replicates with.

An instance that this one cannot reach may well answer a browser, and the other way round, so the
page of replication asks each of them itself whether it is ready. A page may connect only with what
its policy names when it is loaded: instances that are heard of later are asked after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.statistics.resources import MESH_INSTANCES

if TYPE_CHECKING:
    from server.statistics.sample import Snapshot


def mesh_addresses(snapshot: Snapshot | None) -> list[str]:
    """Where other instances have their admin interface, as in http://host:8085.

    Args:
        snapshot: what is known; None before the first sample.
    """
    if snapshot is None:
        return []
    names = [field.name for field in MESH_INSTANCES.fields]
    known = (
        dict(zip(names, values, strict=True))
        for values in snapshot.entries.get(MESH_INSTANCES.path, {}).values()
    )
    return [
        f"{one['admin_scheme']}://{one['admin_addr']}"
        for one in known
        if one["admin_addr"] and not one["is_this"]
    ]
