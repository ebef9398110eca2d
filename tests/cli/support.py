"""What tests of commands have in common."""

from __future__ import annotations

import tarfile
from pathlib import Path


def contents(archive: Path) -> dict[str, str]:
    """The files of an archive, by their names in its folder."""
    with tarfile.open(archive) as opened:
        found = {one.name: opened.extractfile(one) for one in opened.getmembers()}
        return {
            name.partition("/")[2]: file.read().decode() for name, file in found.items() if file
        }
