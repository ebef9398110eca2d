"""Guards SQLite's index of a WAL file in shared memory against truncation of its file.

All processes that have a database open share the index by mapping a file, `stats.db-shm`. If a
program truncates that file, every process that touches the map is killed (SIGBUS). Here the map is
guarded, as those of records are (`server/storage/sow/slab/map_guard.pyx`): lost pages are read as
zeros, which is detected before a transaction is committed. SQLite rebuilds an index with a zero
header from the WAL file, so the header is set to zero: no process uses the rest of the index.

SQLite maps more of the file as the WAL file grows, and does not report where. The system does.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from pathlib import Path
from typing import Final

from server.storage.sow.slab.map_guard import MapGuard

_MAPS: Final = Path("/proc/self/maps")
_HEADER: Final = 136
"""Bytes at the beginning: the header, twice, and the progress of copying to the database."""


class SharedIndex:
    """The index of one database, as mapped by this process.

    Args:
        path: the database; it has been read from.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-shm"
        self._guard = MapGuard()
        self._size = 0
        self._maps: dict[int, ctypes.Array[ctypes.c_char]] = {}  # by place in the file

    def guard_new_maps(self) -> None:
        """Guard the maps added since the last look."""
        size = self._file_size()
        if size > self._size:
            self._size = size
            self._guard_maps()

    def check_pages(self) -> None:
        """Check that no page has been lost.

        Raises:
            sqlite3.OperationalError: one has; all that was read since may be wrong.
        """
        if self._guard.lost or self._file_size() < self._size:
            raise sqlite3.OperationalError(f"another program has changed {self._path}")

    def invalidate(self) -> None:
        """Invalidate the index if a page has been lost; called before the database is closed.

        Closing would otherwise copy pages from the WAL file to the database by that index.
        """
        if (self._guard.lost or self._file_size() < self._size) and 0 in self._maps:
            ctypes.memset(self._maps[0], 0, _HEADER)

    def close(self) -> None:
        """Stop guarding; called after the database is closed, which uses the index once more.

        If another object has mapped a file in the same place meanwhile, and guards it, a loss is
        reported to its guard.
        """
        for mapped in self._maps.values():
            self._guard.give_up(mapped)
        self._maps.clear()

    def _guard_maps(self) -> None:
        try:
            status = os.stat(self._path)
            lines = _MAPS.read_text(errors="replace").splitlines()
        except OSError:
            return  # the file has been removed, or /proc is not available
        for line in lines:
            addresses, _, offset, _, inode, *name = line.split(maxsplit=5)
            if int(inode) == status.st_ino and name and name[0].endswith("-shm"):
                begin, end = (int(address, 16) for address in addresses.split("-"))
                if int(offset, 16) not in self._maps:
                    mapped = (ctypes.c_char * (end - begin)).from_address(begin)
                    self._guard.cover(mapped)
                    self._maps[int(offset, 16)] = mapped

    def _file_size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return self._size  # a file that has been removed is mapped all the same
