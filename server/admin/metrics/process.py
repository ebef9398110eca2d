"""The standard metrics of a process, under their standard names.

Source: Prometheus, Writing Client Libraries, Process Metrics.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Final

from server.admin.metrics.exposition import MetricFamily, counter, gauge
from server.statistics.resources import MEMORY
from server.statistics.sample import StatisticsSnapshot

_STARTED: Final = time.time()
_DESCRIPTORS: Final = "/proc/self/fd"
_RESIDENT: Final = [field.name for field in MEMORY.fields].index("rss")
_VIRTUAL: Final = [field.name for field in MEMORY.fields].index("vmsize")


def process(snapshot: StatisticsSnapshot) -> list[MetricFamily]:
    """Return the families: memory as of the sample, all else as of now."""
    memory = next(iter(snapshot.entries.get(MEMORY.path, {}).values()), (0, 0))
    max_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        counter(
            "process_cpu_seconds",
            "Time of processors that was used, in the kernel and in the program.",
            [("", round(time.process_time(), 6))],
            "seconds",
        ),
        gauge(
            "process_resident_memory_bytes",
            "Bytes of the process that are in memory.",
            [("", _bytes(memory[_RESIDENT]))],
            "bytes",
        ),
        gauge(
            "process_virtual_memory_bytes",
            "Bytes of the process's address space.",
            [("", _bytes(memory[_VIRTUAL]))],
            "bytes",
        ),
        gauge(
            "process_start_time_seconds",
            "When the process was started, in seconds since 1970.",
            [("", round(_STARTED, 3))],
            "seconds",
        ),
        gauge("process_open_fds", "Open files and sockets.", [("", _open())]),
        gauge("process_max_fds", "How many may be open.", [("", max_open)]),
    ]


def _bytes(value: object) -> int:
    return value if isinstance(value, int) else 0


def _open() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))
    except OSError:  # /proc is not mounted
        return 0
