"""The index that SQLite keeps of a WAL file in shared memory: its file may lose its content.

All who have a database open share the index by mapping a file, `stats.db-shm`. Whoever truncates
that file has every process killed that touches the map (SIGBUS). Here the map is watched over, as
those of records are (`server/sow/map_guard.pyx`): what is lost is read as zeros, which is noticed
before a transaction is committed. SQLite takes an index whose header is zero for one that has to be
made again from the WAL file, so the header is made zero: nobody goes by what is left of it.

SQLite maps more of the file as the WAL file grows, and does not say where. The system does.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from pathlib import Path
from typing import Final

from server.sow.map_guard import MapGuard

_MAPS: Final = Path("/proc/self/maps")
_HEADER: Final = 136
"""Bytes at the beginning: the header, twice, and how much has been copied to the database."""


class SharedIndex:
    """The index of one database, as this process has mapped it.

    Args:
        path: the database; it has been read from.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-shm"
        self._guard = MapGuard()
        self._size = 0
        self._maps: dict[int, ctypes.Array[ctypes.c_char]] = {}  # by place in the file

    def look(self) -> None:
        """Watch over what has been mapped since the last look."""
        size = self._file_size()
        if size > self._size:
            self._size = size
            self._cover()

    def check(self) -> None:
        """See that nothing has been lost.

        Raises:
            sqlite3.OperationalError: something has; what has been read since may be wrong.
        """
        if self._guard.lost or self._file_size() < self._size:
            raise sqlite3.OperationalError(f"another program has changed {self._path}")

    def spoil(self) -> None:
        """If something has been lost, have the rest used by nobody: the database is to be closed.

        What is in the WAL file would be copied to the database by it.
        """
        if (self._guard.lost or self._file_size() < self._size) and 0 in self._maps:
            ctypes.memset(self._maps[0], 0, _HEADER)

    def close(self) -> None:
        """Watch no more: the database has been closed, which has used the index once more.

        Should somebody have mapped a file in the same place meanwhile, and watch over that, it is
        their guard that is told.
        """
        for mapped in self._maps.values():
            self._guard.give_up(mapped)
        self._maps.clear()

    def _cover(self) -> None:
        try:
            found = os.stat(self._path)
            lines = _MAPS.read_text(errors="replace").splitlines()
        except OSError:
            return  # it has been removed, or the system does not say
        for line in lines:
            addresses, _, offset, _, inode, *name = line.split(maxsplit=5)
            if int(inode) == found.st_ino and name and name[0].endswith("-shm"):
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
