"""How much of what is freed the process keeps for what comes next.

What leaves for clients is made in pieces of some hundreds of kilobytes, ten for ten subscribers,
and freed when the system has taken them, a thousand times a second. glibc's allocator gives such
memory back each time, and so gets pages that have to be filled with zeros for the next pieces: with
1 KB to ten subscribers, that was more than half of all processor time. Now it keeps a little, and
takes from the system what is so large that it seldom comes.

Whoever has set the allocator up in the environment is left alone, and so are others than glibc's.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Names of parameters, in glibc's malloc.h."""

_MOST_KEPT: Final = 16 << 20
"""Bytes that are kept at the end of the heap, of each thread that has one."""

_LARGE: Final = 2 << 20
"""From how many bytes on a piece is the system's own, and goes back to it."""

_SET_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_some() -> None:
    """Have the allocator keep some of what is freed from now on."""
    if any(name in os.environ for name in _SET_BY_USER):
        return
    set_up = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_up is not None:
        set_up(_TRIM_THRESHOLD, _MOST_KEPT)
        set_up(_MMAP_THRESHOLD, _LARGE)
