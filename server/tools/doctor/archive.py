"""One archive with all that a colleague needs."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

_MODE: Final = 0o600


def write_archive(path: Path, folder: str, texts: Mapping[str, str], moment: datetime) -> None:
    """Write an archive that only its owner may read; a file that is there is left alone.

    Args:
        path: of the archive.
        folder: what all of it is in.
        texts: the files, by their paths below that.
        moment: when they were made.

    Raises:
        OSError: it cannot be written, and is not there.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with (
            open(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, text in sorted(texts.items()):
                octets = text.encode(errors="backslashreplace")
                about = tarfile.TarInfo(f"{folder}/{name}")
                about.size, about.mode, about.mtime = len(octets), _MODE, moment.timestamp()
                archive.addfile(about, io.BytesIO(octets))
    except OSError:
        path.unlink()
        raise
