"""amps-action-do-remove-files: removes old files, but no journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.old_files import OldFiles

if TYPE_CHECKING:
    from pathlib import Path


class DoRemoveFiles(OldFiles):
    """Removes files."""

    def process_file(self, path: Path) -> None:
        """Remove one."""
        path.unlink()
