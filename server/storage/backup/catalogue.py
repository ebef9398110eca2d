"""The backups in a directory: their names, their manifests, and which of them are expired."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from config_schema.spec.common import DIRECTORY_MODE
from server.storage.backup.file_copy import remove_if_present
from server.storage.backup.manifest import (
    MANIFEST_NAME,
    BackupManifest,
    ManifestError,
    parse_utc,
    read_manifest,
)

_TIME: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"(?P<instance>.+)-(?P<time>\d{8}T\d{6}Z)(-(?P<number>\d+))?", re.ASCII)
_UNFIT: Final = re.compile(r"[/\s]")
_MAX_NAMES: Final = 1000


class BackupRetention(NamedTuple):
    """Which backups of an instance are kept: those that one of the limits keeps.

    Attributes:
        keep: number of complete backups; None for no such limit.
        keep_days: days since a backup was complete; None for no such limit.
    """

    keep: int | None = None
    keep_days: int | None = None


class StoredBackup(NamedTuple):
    """A backup in a directory.

    Attributes:
        id: the name of its directory.
        path: its directory.
        manifest: its manifest; None if it is incomplete or damaged.
        error: why there is no manifest; empty if there is one.
    """

    id: str
    path: Path
    manifest: BackupManifest | None
    error: str = ""


def list_backups(directory: Path) -> list[StoredBackup]:
    """Return the backups in a directory, the oldest first.

    Raises:
        OSError: the directory cannot be read.
    """
    paths = {path.name: path for path in directory.iterdir() if path.is_dir()}
    return [_read_backup(paths[name]) for name in in_order(paths)]


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names that are names of backups, the oldest first."""
    matches = [match for match in map(_NAME.fullmatch, names) if match is not None]
    matches.sort(key=lambda match: (match["time"], int(match["number"] or 0), match["instance"]))
    return [match[0] for match in matches]


def _read_backup(path: Path) -> StoredBackup:
    try:
        manifest = read_manifest(path)
    except (ManifestError, OSError) as error:
        return StoredBackup(path.name, path, None, str(error))
    if manifest is None:
        return StoredBackup(path.name, path, None, "it is incomplete: it has no manifest")
    return StoredBackup(path.name, path, manifest)


def newest_backup(directory: Path, instance: str) -> StoredBackup | None:
    """Return the newest complete backup of an instance; None if there is none.

    Raises:
        OSError: the directory cannot be read.
    """
    backups = list_backups(directory)
    complete = (backup for backup in reversed(backups) if backup.manifest is not None)
    return next((candidate for candidate in complete if _instance_of(candidate) == instance), None)


def _instance_of(backup: StoredBackup) -> str:
    return "" if backup.manifest is None else backup.manifest.instance


def make_backup_directory(directory: Path, instance: str) -> Path:
    """Create the directory of a new backup, named after the instance and the time.

    Raises:
        OSError: it cannot be created.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    stem = f"{_file_name(instance)}-{datetime.now(UTC):{_TIME}}"
    for number in range(_MAX_NAMES):
        path = directory / (f"{stem}-{number}" if number else stem)
        try:
            path.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{directory / stem} exists, and {_MAX_NAMES - 1} others like it")


def expire_backups(
    directory: Path, newest: BackupManifest, retention: BackupRetention
) -> Iterator[str]:
    """Remove the expired backups of an instance, and those that were never completed.

    Args:
        directory: the directory with the backups.
        newest: the newest backup, which is kept.
        retention: which of the others are kept.

    Yields:
        The id of each removed backup.

    Raises:
        OSError: a backup cannot be removed.
    """
    backups = [candidate for candidate in list_backups(directory) if candidate.id != newest.id]
    complete = [backup for backup in backups if _instance_of(backup) == newest.instance]
    expired = _expired(complete, retention)
    for backup in backups:
        if backup.id in expired or _is_abandoned(backup, newest.instance):
            remove_backup(backup.path)
            yield backup.id


def _expired(backups: Sequence[StoredBackup], retention: BackupRetention) -> set[str]:
    """Return the ids of those older backups that no limit keeps."""
    keep, keep_days = retention
    if keep is None and keep_days is None:
        return set()
    kept: set[str] = set()
    if keep is not None:
        kept.update(backup.id for backup in backups[max(len(backups) - max(keep - 1, 0), 0) :])
    if keep_days is not None:
        limit = datetime.fromtimestamp(time.time(), UTC) - timedelta(days=keep_days)
        kept.update(
            backup.id
            for backup in backups
            if backup.manifest is not None and parse_utc(backup.manifest.finished) >= limit
        )
    return {backup.id for backup in backups} - kept


def _is_abandoned(backup: StoredBackup, instance: str) -> bool:
    """Return whether a backup was never completed: an instance makes one at a time."""
    match = _NAME.fullmatch(backup.id)
    is_own = match is not None and match["instance"] == _file_name(instance)
    return is_own and not (backup.path / MANIFEST_NAME).exists()


def remove_backup(path: Path) -> None:
    """Remove a backup. Its manifest goes first, so that one half removed counts as incomplete.

    Raises:
        OSError: it cannot be removed.
    """
    remove_if_present(path / MANIFEST_NAME)
    shutil.rmtree(path)


def _file_name(instance: str) -> str:
    return _UNFIT.sub("_", instance)
