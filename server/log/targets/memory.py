"""The last entries of the log, kept in memory for clients that follow it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.log.levels import Level
from server.log.targets.base import LogLine, LogTarget

MAX_MEMORY_ENTRIES: Final = 1_000
"""Maximum entries kept."""

MAX_MEMORY_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of text kept; a single larger entry is kept alone."""

MAX_MEMORY_ERRORS: Final = 1_000
"""Maximum errors kept, which other entries do not displace."""

MAX_ERROR_BYTES: Final = 256
"""Maximum bytes of the text of one of them."""


class MemoryLogEntry(NamedTuple):
    """An entry in memory.

    Attributes:
        number: the number of the entry since the start, from 1.
        line: the entry.
    """

    number: int
    line: LogLine


class MemoryTarget(LogTarget):
    """Keeps the last entries of the level `info` and above, and more of the errors.

    The writer's thread appends entries; other threads read them and are notified of new ones.
    """

    def __init__(self) -> None:
        """Start empty."""
        spec = LogTargetSpec.plain("stdout", "info")
        super().__init__(spec, Problems())
        self._lock = threading.Lock()
        self._entries: deque[MemoryLogEntry] = deque()
        self._size_bytes = 0
        self._errors: deque[LogLine] = deque(maxlen=MAX_MEMORY_ERRORS)
        self._followers: set[Callable[[], None]] = set()

    @property
    def name(self) -> str:
        """A fixed name, since it is in no configuration."""
        return "memory"

    def write(self, lines: Sequence[LogLine]) -> None:
        """See `LogTarget.write`."""
        with self._lock:
            for number, line in enumerate(lines, self.entries_written + 1):
                self._entries.append(MemoryLogEntry(number, line))
                self._size_bytes += len(line.text)
                if line.level >= Level.ERROR:
                    self._errors.append(line._replace(text=line.text[:MAX_ERROR_BYTES]))
            self._count_written(lines)
            while len(self._entries) > MAX_MEMORY_ENTRIES or (
                self._size_bytes > MAX_MEMORY_BYTES and len(self._entries) > 1
            ):
                self._size_bytes -= len(self._entries.popleft().line.text)
            followers = tuple(self._followers)
        for follower in followers:
            follower()

    def entries_after(self, number: int) -> list[MemoryLogEntry]:
        """Return the entries after one, as far as they are kept.

        Args:
            number: of the entry; 0 for all.
        """
        with self._lock:
            return [entry for entry in self._entries if entry.number > number]

    def recent_errors(self) -> list[LogLine]:
        """Return the last entries of the level `error` and above, each with its first bytes."""
        with self._lock:
            return list(self._errors)

    def add_follower(self, follower: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for new entries.

        Args:
            follower: called on the writer's thread; it must not block.

        Returns:
            A function that removes the callback.
        """
        with self._lock:
            self._followers.add(follower)

        def stop() -> None:
            with self._lock:
                self._followers.discard(follower)

        return stop
