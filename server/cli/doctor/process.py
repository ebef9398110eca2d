"""Finds the process of an instance on this machine by the locks on its files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from server.cli.doctor.machine import ROOT


def find_lock_holder(paths: Iterable[Path], root: Path = ROOT) -> int | None:
    """Return the process that has locked one of the paths; None if none is known.

    It takes no lock to find out, as that could keep a server from starting.
    """
    file_ids = set[str]()
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            continue
        device = about.st_dev
        file_ids.add(f"{os.major(device):02x}:{os.minor(device):02x}:{about.st_ino}")
    try:
        lines = (root / "proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[5] in file_ids and fields[4].isdigit() and int(fields[4]):
            return int(fields[4])
    return None
