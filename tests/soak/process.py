"""What a process holds, as the kernel counts it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_SPARE_FILES = 200
"""Open files left for everything that is no connection under test."""


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in use, in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def own_bytes(pid: int) -> int:
    """The same without pages of files that it has mapped, which the kernel keeps as it likes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    raise LookupError("RssAnon")


def open_files(pid: int) -> int:
    """How many files, sockets included, a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def raise_limit_of_connections() -> int:
    """Allow this process as many open files as it may have; give how many can be connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _SPARE_FILES
