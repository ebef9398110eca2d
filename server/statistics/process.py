"""The process's own figures: processor time and memory, read on the thread of statistics.

Source: AMPS Monitoring Guide, AMPS Instance Statistics (cpu, memory).
"""

from __future__ import annotations

import os
import resource as limits
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from server.statistics.host import PROC
from server.statistics.resources import CPU, MEMORY
from server.statistics.sample import StatisticsEntry, StatisticsSource
from server.statistics.schema import Resource

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def process_sources(
    proc: Path = PROC, clock: Callable[[], float] = time.monotonic
) -> list[StatisticsSource]:
    """Return the sources of the process's figures.

    Args:
        proc: the path of /proc.
        clock: seconds, monotonic.
    """
    return [ProcessCpu(clock), ProcessMemory(proc)]


class ProcessCpu:
    """instance/cpu: shares of one processor's time; several threads may exceed 100 percent.

    Args:
        clock: seconds, monotonic.
    """

    resource: Resource = CPU

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._previous: tuple[float, float, float] | None = None

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        used = limits.getrusage(limits.RUSAGE_SELF)
        now = (self._clock(), used.ru_stime, used.ru_utime)
        at, system, user = self._previous or now
        self._previous = now
        seconds = now[0] - at
        share = [
            100 * max(0.0, seconds_used) / seconds if seconds > 0 else 0.0
            for seconds_used in (now[1] - system, now[1] - system + now[2] - user, now[2] - user)
        ]
        yield StatisticsEntry("", (), tuple(share))


class ProcessMemory:
    """instance/memory.

    Args:
        proc: the path of /proc.
    """

    resource: Resource = MEMORY

    def __init__(self, proc: Path) -> None:
        self._path = proc / "self" / "statm"

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        try:
            size, resident, *_ = map(int, self._path.read_text("ascii").split())
        except (OSError, ValueError):
            size = resident = 0
        yield StatisticsEntry("", (), (resident * _PAGE, size * _PAGE))
