"""The last entries of the log, in memory, for whoever follows it from outside."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.events.targets.base import Line, Target

MOST_ENTRIES: Final = 1_000
"""Entries that are kept."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of text that are kept; a last entry that is larger is kept by itself."""


class Kept(NamedTuple):
    """An entry that is kept.

    Attributes:
        number: counts entries since the start, from 1.
        line: the entry.
    """

    number: int
    line: Line


class MemoryTarget(Target):
    """Keeps the last entries of the level `info` and above.

    The writer's thread adds to it, others read it and are told that there is more.
    """

    def __init__(self) -> None:
        """Nothing has been logged."""
        spec = LogTargetSpec.plain("stdout", "info")
        super().__init__(spec, Problems())
        self._lock = threading.Lock()
        self._kept: deque[Kept] = deque()
        self._size = 0
        self._followers: set[Callable[[], None]] = set()

    @property
    def name(self) -> str:
        """It has no name in any configuration."""
        return "memory"

    def write(self, lines: Sequence[Line]) -> None:
        """See `Target.write`."""
        with self._lock:
            for number, line in enumerate(lines, self.entries_written + 1):
                self._kept.append(Kept(number, line))
                self._size += len(line.text)
            self._account(lines)
            while len(self._kept) > MOST_ENTRIES or (
                self._size > MOST_BYTES and len(self._kept) > 1
            ):
                self._size -= len(self._kept.popleft().line.text)
            followers = tuple(self._followers)
        for tell in followers:
            tell()

    def since(self, number: int) -> list[Kept]:
        """The entries behind one, as far as they are kept.

        Args:
            number: of the entry; 0 for all.
        """
        with self._lock:
            return [kept for kept in self._kept if kept.number > number]

    def follow(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have a function called whenever there is more.

        Args:
            tell: called on the writer's thread; it does not wait.

        Returns:
            What ends that.
        """
        with self._lock:
            self._followers.add(tell)

        def stop() -> None:
            with self._lock:
                self._followers.discard(tell)

        return stop
