"""amps-action-do-compress-files: compresses old files, but no journals.

A file is replaced by one with `.gz` after its name, with the same permissions and time of change.
Files that have that ending are compressed already, and left alone.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Final

from actions.old_files import OldFiles

_ENDING: Final = ".gz"
_CHUNK: Final = 1024 * 1024


class DoCompressFiles(OldFiles):
    """Compresses files."""

    def process_file(self, path: Path) -> None:
        """Compress one file; if that fails, it stays as it was.

        Raises:
            OSError: it cannot be read, the compressed one cannot be written, or is there already.
        """
        if path.suffix == _ENDING:
            return
        target = path.with_name(path.name + _ENDING)
        unfinished = target.with_name(f".{target.name}.unfinished")
        if target.exists():
            raise FileExistsError(f"there is a {target.name} already")
        try:
            with (
                path.open("rb") as source,
                open(unfinished, "wb", opener=_open_for_owner) as target_file,
                gzip.open(target_file, "wb") as compressed,
            ):
                shutil.copyfileobj(source, compressed, _CHUNK)
            shutil.copystat(path, unfinished)
            with unfinished.open("rb") as finished:
                os.fsync(finished.fileno())
            unfinished.rename(target)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        path.unlink()


def _open_for_owner(path: str, flags: int) -> int:
    """Open a file for its owner alone, until it has the permissions of the one that it replaces."""
    return os.open(path, flags, 0o600)
