"""Copies backups to and from an object store, by fsspec: s3://, gs://, abfs:// and so on.

A backup is in the store as it is in its directory, below the URL: ID/manifest.json and its files.
The manifest is written last, so that an interrupted upload is no backup, and the next one goes on
with the files that are missing. It takes `amperage[object-store]`, and the package of the protocol,
such as s3fs; they read credentials from the environment and their own files, and options from
fsspec's configuration.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from config_schema.redaction import masked, without_userinfo
from server.storage.backup.catalogue import StoredBackup, in_order
from server.storage.backup.manifest import MANIFEST_NAME, read_manifest
from server.storage.backup.writer import FILES

if TYPE_CHECKING:
    from server.storage.backup.manifest import BackupManifest

_INSTALL = "pip install 'amperage[object-store]'"


class ObjectStoreError(Exception):
    """A backup cannot be copied. The text has the cause."""


class ObjectStore:
    """The backups below a URL.

    Args:
        url: the URL.

    Attributes:
        url: the URL, without credentials.

    Raises:
        ObjectStoreError: no package for its protocol is installed, or it refuses the URL.
    """

    def __init__(self, url: str) -> None:
        self.url: Final = without_userinfo(url)
        with self._one_line_errors():
            from fsspec.core import url_to_fs

            self._files: Any
            self._files, root = url_to_fs(url)
        self._root: Final = PurePosixPath(root)

    def upload(self, backup: StoredBackup, manifest: BackupManifest) -> int:
        """Copy the files of a backup that the store does not have.

        Returns:
            The number of bytes that were sent.

        Raises:
            ObjectStoreError: that is not possible.
        """
        sent = 0
        with self._one_line_errors():
            self._files.invalidate_cache()
            for file in manifest.files:
                path = self._path(backup.id, f"{FILES}/{file.path}")
                if not self._has(path, file.size):
                    self._send(backup.path / FILES / file.path, path)
                    sent += file.size
            self._send(backup.path / MANIFEST_NAME, self._path(backup.id, MANIFEST_NAME))
        return sent

    def download(self, backup_id: str | None, directory: Path) -> Path:
        """Copy a backup, or the newest complete one, to a directory of its name.

        Returns:
            The directory of the backup.

        Raises:
            ObjectStoreError: there is no such backup, it is there already, or cannot be copied.
        """
        with self._one_line_errors():
            self._files.invalidate_cache()
            name = self._find(backup_id)
            target, partial = directory / name, directory / f".{name}.partial"
            if target.exists():
                raise FileExistsError(f"{target} exists: nothing was changed")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self._fetch(name, partial)
            partial.rename(target)
        return target

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Raise ObjectStoreError instead of any other error: each protocol has its own."""
        try:
            yield
        except ObjectStoreError:
            raise
        except Exception as error:
            cause = masked(" ".join(str(error).split())) or type(error).__name__
            hint = f"; {_INSTALL}" if isinstance(error, ImportError) else ""
            raise ObjectStoreError(f"{self.url}: {cause}{hint}") from None

    def _fetch(self, name: str, target: Path) -> None:
        """Copy all files that the manifest lists, none of which is outside of the backup."""
        self._files.get_file(self._path(name, MANIFEST_NAME), str(target / MANIFEST_NAME))
        manifest = read_manifest(target)
        for file in () if manifest is None else manifest.files:
            path = target / FILES / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(self._path(name, f"{FILES}/{file.path}"), str(path))

    def _find(self, backup_id: str | None) -> str:
        """Return the id of a backup, or that of the newest complete one."""
        if backup_id is None:
            listed = self._files.ls(str(self._root), detail=False)
            names = in_order(PurePosixPath(path).name for path in listed)
        else:
            names = in_order([backup_id])
        for name in reversed(names):
            if self._files.exists(self._path(name, MANIFEST_NAME)):
                return name
        missing = "complete backup" if backup_id is None else f"complete backup {backup_id}"
        raise ObjectStoreError(f"there is no {missing} in {self.url}")

    def _has(self, path: str, size: int) -> bool:
        try:
            return bool(self._files.info(path)["size"] == size)
        except FileNotFoundError:
            return False

    def _send(self, source: Path, path: str) -> None:
        self._files.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        self._files.put_file(str(source), path)

    def _path(self, backup_id: str, path: str) -> str:
        return str(self._root / backup_id / path)
