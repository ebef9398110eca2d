"""Limits on the memory and disk kept for slow clients: configuration and defaults.

Source: AMPS User Guide, Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Final

from config_schema.spec import SlowClientLimits

_DEFAULT_SHARE_OF_MEMORY: Final = 10  # percent
_DEFAULT_CLIENT_CAPACITY: Final = 50  # percent
_MIN_DEFAULT_DISK: Final = 1024**3
_DEFAULT_DIRECTORY: Final = "/var/tmp"  # noqa: S108 - AMPS's directory of these files; here they have no name
_NANOSECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits on bytes kept for the clients of a pool.

    Attributes:
        memory_bytes: bytes in memory, all clients together.
        disk_bytes: bytes on disk, all clients together.
        directory: the directory of the files for offlined clients.
        client_share: the part of either that one client may use, from 0 to 1.
        max_age_s: seconds that a byte may wait, None for no limit.
    """

    memory_bytes: int
    disk_bytes: int
    directory: str
    client_share: float
    max_age_s: float | None


def has_own_pool(transport: SlowClientLimits) -> bool:
    """Return True if the clients of a transport have a pool of their own."""
    return transport != SlowClientLimits(None, None, None, None, None)


def limits_of(spec: SlowClientLimits, enclosing: SlowClientLimits | None = None) -> ClientLimits:
    """Return the limits of a configuration, with defaults for missing values.

    Args:
        spec: the limits of the instance or of a transport.
        enclosing: for a transport, those of the instance.
    """

    outer = spec if enclosing is None else enclosing
    memory = spec.message_memory_limit or outer.message_memory_limit or _default_memory()
    disk = spec.message_disk_limit or outer.message_disk_limit or max(memory, _MIN_DEFAULT_DISK)
    age = spec.client_message_age_limit or outer.client_message_age_limit
    capacity = spec.client_max_capacity or outer.client_max_capacity or _DEFAULT_CLIENT_CAPACITY
    return ClientLimits(
        memory_bytes=memory,
        disk_bytes=disk,
        directory=spec.message_disk_path or outer.message_disk_path or _DEFAULT_DIRECTORY,
        client_share=capacity / 100,
        max_age_s=None if age is None else age / _NANOSECONDS,
    )


def _default_memory() -> int:
    """Return a tenth of the host's memory, or of the limit of this process if that is lower."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    rss_limit, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if rss_limit != resource.RLIM_INFINITY:
        memory = min(memory, rss_limit)
    return memory * _DEFAULT_SHARE_OF_MEMORY // 100
