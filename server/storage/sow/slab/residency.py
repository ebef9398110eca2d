"""The share of a mapped file that is in memory: the kernel reports it for some of its pages."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Final

_SAMPLE_COUNT: Final = 64
"""Pages sampled at equal distances; 0.1 ms altogether."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def resident_share(maps: Sequence[mmap.mmap]) -> float:
    """Return the share of pages in memory, 0 to 1, of maps that all have one size."""
    if not maps:
        return 1.0
    pages = len(maps[0]) // mmap.PAGESIZE
    total = pages * len(maps)
    sampled_pages = range(0, total, max(total // _SAMPLE_COUNT, 1))
    return sum(_is_resident(maps[page // pages], page % pages) for page in sampled_pages) / len(
        sampled_pages
    )


def _is_resident(memory: mmap.mmap, page: int) -> bool:
    """Return whether a page is in memory; False for one that no longer exists."""
    begin = ctypes.c_char.from_buffer(memory, page * mmap.PAGESIZE)
    answer = ctypes.c_ubyte(0)
    address = ctypes.c_void_p(ctypes.addressof(begin))
    failed = _libc.mincore(address, ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(answer))
    return not failed and bool(answer.value & 1)
