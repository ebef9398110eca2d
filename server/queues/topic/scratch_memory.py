"""File-backed memory for queue metadata, so that the operating system can page it out.

The file is not a store: the log is. It has no name, so that no other process can truncate it, and
nothing of it remains when the process ends, for any reason. Its space is reserved before use, since
a write to a mapping on a full disk would kill the process with a signal. Without space, columns
stay in memory. A disk that fails to read a page kills the process, which recovers everything from
the log.

Source: AMPS User Guide, FileBackedMetadata.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

_MIN_GROWTH: Final = 4 << 20
_MAX_GROWTH: Final = 256 << 20
"""Limits of the file's growth, in bytes: it doubles within them. Each map takes a descriptor."""


class ScratchMemory:
    """Allocates memory in a file for the columns of one queue. See
    `server.queues.core.message_table.ColumnStorage`.

    Args:
        directory: the directory of the file.
        on_out_of_space: called when there is no space; not again until the file has grown in
            between.
    """

    def __init__(self, directory: Path, on_out_of_space: Callable[[OSError], None]) -> None:
        self._directory: Final = directory
        self._on_out_of_space: Final = on_out_of_space
        self._file: IO[bytes] | None = None
        self._size = 0
        self._unused_memory = memoryview(b"")  # the unused part of the last map
        self._free_by_size: dict[int, list[memoryview]] = {}
        self._allocated_count = 0
        self._is_out_of_space = False

    def allocate(self, size: int) -> memoryview | None:
        """See `ColumnStorage.allocate`."""
        free_blocks = self._free_by_size.get(size)
        if free_blocks:
            self._allocated_count += 1
            return free_blocks.pop()
        if len(self._unused_memory) < size and not self._grow(size):
            return None
        self._allocated_count += 1
        allocated, self._unused_memory = self._unused_memory[:size], self._unused_memory[size:]
        return allocated

    def release(self, memory: memoryview) -> None:
        """See `ColumnStorage.release`; the last block also frees the space on the disk."""
        self._allocated_count -= 1
        if self._allocated_count:
            self._free_by_size.setdefault(len(memory), []).append(memory)
            return
        self._free_by_size.clear()
        self._unused_memory = memoryview(b"")
        self._size = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _grow(self, min_size: int) -> bool:
        """Extend the file and map the extension; return True on success."""
        extension_size = max(min(max(self._size, _MIN_GROWTH), _MAX_GROWTH), min_size)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - see release
            file = self._file.fileno()
            os.posix_fallocate(file, self._size, extension_size)
            mapped = mmap.mmap(file, extension_size, offset=self._size)
        except OSError as problem:
            if not self._is_out_of_space:
                self._on_out_of_space(problem)
            self._is_out_of_space = True
            return False
        self._is_out_of_space = False
        self._size += extension_size
        self._unused_memory = memoryview(mapped)
        return True
