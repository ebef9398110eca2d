"""The memory that this process may use: that of the machine, or the limit of its cgroup."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_VERSION_2: Final = "0::/"
"""The beginning of the line that names the cgroup of version 2."""


def available_memory_bytes() -> int:
    """Return the memory of the machine, or of the smallest limit of the cgroups above this one."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return []
    path = next((line[len(_VERSION_2) :] for line in lines if line.startswith(_VERSION_2)), None)
    if path is None:
        return []
    own = _CGROUPS / path
    limits: list[int] = []
    for directory in (own, *own.parents):
        if not directory.is_relative_to(_CGROUPS):
            break
        try:
            text = (directory / "memory.max").read_text().strip()
        except OSError:  # the root has none
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits
