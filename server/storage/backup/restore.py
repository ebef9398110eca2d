"""Restores a backup to a directory, and verifies the checksums on the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config_schema.spec.common import DIRECTORY_MODE
from server.storage.backup.file_copy import copy_file
from server.storage.backup.manifest import BackupFileKind, sync_directory
from server.storage.backup.point_in_time import (
    check_rebuild,
    cut_log,
    files_until,
    find_last_txid,
)
from server.storage.backup.writer import FILES

if TYPE_CHECKING:
    from server.storage.backup.manifest import BackupFile, BackupManifest

_ALLOCATED = frozenset({BackupFileKind.LAST_JOURNAL, BackupFileKind.SOW})
"""Files with holes that an instance writes to, and for which a full disk must not be a surprise."""


class RestoreError(Exception):
    """A backup cannot be restored. The text is the reason."""


def restore_backup(
    directory: Path,
    manifest: BackupManifest,
    target: Path,
    check: Callable[[], None],
    until: str | None = None,
) -> int:
    """Restore a backup to a directory that does not exist, or is empty.

    Args:
        directory: the directory of the backup.
        manifest: its manifest.
        target: where the files are restored to.
        until: the time or bookmark at which the restored log ends; None for that of the backup.
        check: called often; an exception that it raises ends the restore.

    Returns:
        The last entry of the restored log; 0 without a log.

    Raises:
        RestoreError: the target has files, or a file of the backup is damaged or missing.
        PointInTimeError: the log cannot be cut there, or records cannot be rebuilt from it.
        OSError: a file cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RestoreError(f"{target} is not empty: a restore overwrites nothing")
    last_txid = manifest.last_txid
    files: Sequence[BackupFile] = manifest.files
    if until is not None:
        last_txid = find_last_txid(directory, manifest, until)
        check_rebuild(directory, manifest)
        files = files_until(manifest, last_txid)
    target.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    try:
        for file in files:
            _restore_file(directory / FILES / file.path, target / file.path, file, check)
        if until is not None:
            cut_log(target, manifest, last_txid, check)
        for parent in {path.parent for path in target.rglob("*")}:
            sync_directory(parent)
    except BaseException:
        clear_directory(target)
        raise
    return last_txid


def clear_directory(directory: Path) -> None:
    """Remove all that a restore has put into a directory."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _restore_file(source: Path, target: Path, file: BackupFile, check: Callable[[], None]) -> None:
    if not source.is_file():
        raise RestoreError(f"{source} is missing from the backup")
    copied = copy_file(source, target, check)
    if (copied.size, copied.sha256) != (file.size, file.sha256):
        raise RestoreError(f"{source} is damaged: it is not the file that was backed up")
    if file.kind in _ALLOCATED:
        descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, file.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
