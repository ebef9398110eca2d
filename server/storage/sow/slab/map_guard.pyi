"""Mapped files that lose their content; the theory of it is in map_guard.pyx."""

import ctypes
import mmap

class MapGuard:
    """Watches over the maps of one file.

    Attributes:
        lost: not 0 once a page of a map could not be had, or somebody found out otherwise that the
            content is not what it was.
    """

    lost: int

    def cover(self, mapped: mmap.mmap | ctypes.Array[ctypes.c_char]) -> None:
        """Have pages that cannot be had replaced by zeros, and `lost` set."""

    def give_up(self, mapped: mmap.mmap | ctypes.Array[ctypes.c_char]) -> None:
        """Watch over a map no longer; it is about to be closed."""
