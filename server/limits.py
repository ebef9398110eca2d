"""How much unread data clients may cause to be kept.

Source: AMPS User Guide, Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from config_schema.spec import SlowClientLimits

_DEFAULT_SHARE_OF_MEMORY: Final = 10  # percent
_DEFAULT_CLIENT_CAPACITY: Final = 50  # percent


def client_capacity(transport: SlowClientLimits, instance: SlowClientLimits) -> int:
    """The bytes that may wait for one client of a transport before it counts as slow.

    Args:
        transport: the limits that the transport sets; they take precedence.
        instance: the limits of the instance.
    """
    memory = transport.message_memory_limit or instance.message_memory_limit or _default_memory()
    percentage = (
        transport.client_max_capacity or instance.client_max_capacity or _DEFAULT_CLIENT_CAPACITY
    )
    return memory * percentage // 100


def _default_memory() -> int:
    """A tenth of what the host has, or of what this process may use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if allowed != resource.RLIM_INFINITY:
        memory = min(memory, allowed)
    return memory * _DEFAULT_SHARE_OF_MEMORY // 100
