"""The places of entries in a SOW file, where tests cut it."""

from __future__ import annotations

from pathlib import Path

from server.storage.sow.slab.slab_file import SlabFile
from server.storage.sow.slab.slab_format import PAGE
from server.storage.sow.slab.slab_scan import scan


def sow_entries(path: Path) -> tuple[list[int], int]:
    """Return where the entries of a SOW file begin, and where its first slab ends."""
    places: list[int] = []
    file = SlabFile(path, writable=False)
    scan(file, lambda location, _: places.append(PAGE + location))
    end = PAGE + file.slab_size
    file.close()
    return places, end
