"""Mapped files that lose their content; map_guard.pyx has the theory of operation."""

import ctypes
import mmap

class MapGuard:
    """Guards the maps of one file against lost pages.

    Attributes:
        lost: not 0 once a page of a map could not be read, or a caller has detected otherwise that
            the content has changed.
    """

    lost: int

    def cover(self, mapped: mmap.mmap | ctypes.Array[ctypes.c_char]) -> None:
        """Replace pages of a map that are lost by zeros, and set `lost`, from now on."""

    def give_up(self, mapped: mmap.mmap | ctypes.Array[ctypes.c_char]) -> None:
        """Stop guarding a map that is about to be closed."""
