"""Configures how much freed memory the process keeps for later allocations.

Output for clients is made in pieces of some hundreds of kilobytes, ten for ten subscribers, and
freed when the kernel has accepted them, a thousand times a second. By default, glibc's allocator
returns such memory to the system each time, and gets pages that have to be filled with zeros for
the next pieces: with 1 KB to ten subscribers, that was more than half of all processor time. With
these settings it keeps a little. Pieces so large that they are rare are mapped from the system.

Settings of the allocator in the environment take precedence, and other allocators than glibc's are
left alone.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt, from glibc's malloc.h."""

_MAX_KEPT: Final = 16 << 20
"""Bytes that are kept at the end of each heap; threads may have their own heap."""

_MMAP_SIZE: Final = 2 << 20
"""Bytes of a piece from which on it is mapped on its own, and returned to the system when freed."""

_SET_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def limit_memory_trim() -> None:
    """Make the allocator keep some of the memory that is freed from now on."""
    if any(name in os.environ for name in _SET_BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT)
        mallopt(_MMAP_THRESHOLD, _MMAP_SIZE)
