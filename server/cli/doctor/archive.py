"""Writes one archive with everything that a colleague needs for support."""

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
    """Write an archive that only its owner may read; never overwrite an existing file.

    Args:
        path: path of the archive.
        folder: the directory inside the archive that holds all files.
        texts: the files, by their paths below that.
        moment: modification time of the files.

    Raises:
        OSError: it cannot be written; no partial archive is left.
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
