"""The zip file that `amps_sow_dump -z` writes.

It is written beside its place and renamed when it is complete, so that an error leaves the earlier
file as it was. Nothing but an older archive is replaced: the name of the archive and those of the
files to read are easily mixed up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, is_zipfile

from config_schema.spec.common import FILE_MODE
from server.util.safe_open import open_regular


def expect_replaceable(path: Path, inputs: Iterable[Path]) -> None:
    """Check that writing an archive replaces nothing but an older one.

    Args:
        path: path of the archive.
        inputs: the files whose records go into it, all of which exist.

    Raises:
        OSError: another file has its name, or it is one of the inputs.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            is_archive = is_zipfile(file)
    except FileNotFoundError:
        return
    if any(os.path.samestat(status, os.stat(one)) for one in inputs):
        raise FileExistsError(EEXIST, "it is one of the files to read: name another archive")
    if not is_archive:
        raise FileExistsError(EEXIST, "it is there already and no zip archive: name another file")


@contextmanager
def new_archive(path: Path) -> Iterator[ZipFile]:
    """Write an archive; it gets its name, complete, when the block ends without an error.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))  # a symbolic link stays one
    beside = target.with_name(f".{target.name[:200]}.{os.getpid()}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "wb") as file, ZipFile(file, "w", ZIP_DEFLATED) as archive:
            yield archive
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
