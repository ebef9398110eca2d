"""The sizes of data structures, from a snapshot: for minidumps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.resources import (
    CACHES,
    CLIENTS,
    MEMORY,
    PAGINATIONS,
    QUEUES,
    SOW,
    STATISTICS,
)
from server.statistics.timestamps import to_text

if TYPE_CHECKING:
    from server.statistics.sample import StatisticsSnapshot
    from server.statistics.schema import Resource

_SIZES: Final = (
    (MEMORY, ("rss", "vmsize")),
    (CACHES, ("bytes", "entries", "overflow_bytes")),
    (SOW, ("memory_bytes", "stored_bytes", "valid_keys")),
    (PAGINATIONS, ("memory_bytes", "subscription_count")),
    (QUEUES, ("queue_depth", "backlog", "inactive_message_count", "deferred_ack_count")),
    (CLIENTS, ("queued_bytes_out", "transport_tx_queue", "subscription_count")),
    (STATISTICS, ("memory_used", "file_size")),
)
"""Resources that grow, and fields with their sizes; the largest by the first field are shown."""

_MAX_SHOWN: Final = 20


def sizes(snapshot: StatisticsSnapshot) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield tables of sizes: each has a title, and lines with a name and a number.

    Args:
        snapshot: the snapshot.
    """
    sample_time = to_text(snapshot.timestamp)
    for resource, fields in _SIZES:
        rows = _rows(snapshot, resource, fields)
        total = len(snapshot.entries.get(resource.path, ()))
        shown = f", the largest {_MAX_SHOWN} of {total:,}" if total > _MAX_SHOWN else ""
        yield f"{resource.path} at {sample_time}{shown}", rows


def _rows(
    snapshot: StatisticsSnapshot, resource: Resource, fields: tuple[str, ...]
) -> list[tuple[str, int]]:
    names = [field.name for field in resource.fields]
    indexes = [names.index(field) for field in fields]
    entries = [
        (identity, [int(values[index]) for index in indexes])
        for identity, values in snapshot.entries.get(resource.path, {}).items()
    ]
    entries.sort(key=lambda entry: entry[1][0], reverse=True)
    return [
        (f"{identity} {field}".strip(), number)
        for identity, numbers in entries[:_MAX_SHOWN]
        for field, number in zip(fields, numbers, strict=True)
    ]
