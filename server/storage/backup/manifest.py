"""The manifest of a backup: its files with sizes and checksums, and the part of the log in it."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from config_schema.spec.common import FILE_MODE

MANIFEST_NAME: Final = "manifest.json"
FORMAT: Final = 1
"""Version of the manifest's format."""

_CHECKSUM: Final = "checksum"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class ManifestError(Exception):
    """A manifest is damaged, or of another version. The text is the reason."""


class BackupFileKind(StrEnum):
    """The kind of a file of a backup."""

    CONFIGURATION = "configuration"
    JOURNAL = "journal"
    """A full journal."""
    LAST_JOURNAL = "last_journal"
    """The journal that was being written to, up to the last entry of the backup."""
    JOURNAL_INDEX = "journal_index"
    SIDECAR = "sidecar"
    """A table beside the journals."""
    SOW = "sow"
    CHAINS = "chains"
    """The ids of a chaining key generator."""
    STATISTICS = "statistics"


class BackupFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a backup.

    Attributes:
        path: its path in the directory of the backup, and below the directory of a restore.
        kind: its kind.
        original: the path of the original, absolute.
        size: its size in bytes.
        sha256: the SHA-256 of its content, in hexadecimal digits.
        identity: device, inode, size and modification time of the original, for files that are not
            written to any more; empty for others.
        first_txid: the first entry of a journal.
        last_txid: the last entry of a journal.
    """

    path: str
    kind: BackupFileKind
    original: str
    size: int
    sha256: str
    identity: str = ""
    first_txid: int = 0
    last_txid: int = 0


class BackupManifest(msgspec.Struct, frozen=True):
    """The content of a backup.

    Attributes:
        format: version of this format.
        id: name of the backup's directory.
        instance: name of the instance.
        version: version of the server.
        begun: when the backup was begun, UTC.
        finished: when it was complete, UTC.
        working_directory: the directory in which the instance ran.
        configuration: path in the backup of the configuration file; empty if there is none.
        first_txid: the first entry of the log; 0 without a log.
        last_txid: the last entry of the log in the backup; 0 without a log.
        last_time: when that entry was recorded, UTC; empty without entries.
        last_bookmark: bookmark of the last message in the backup; empty if none is near the end.
        files: the files.
    """

    format: int
    id: str
    instance: str
    version: str
    begun: str
    finished: str
    working_directory: str
    configuration: str
    first_txid: int
    last_txid: int
    last_time: str
    last_bookmark: str
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def utc_text(seconds: float) -> str:
    """Return a time, given in seconds since the Unix epoch, as the text of a manifest."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME)


def parse_utc(text: str) -> datetime:
    """Return the time of a text of a manifest.

    Raises:
        ValueError: it is not such a text.
    """
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


def store_manifest(directory: Path, manifest: BackupManifest) -> None:
    """Store a manifest in the directory of its backup, atomically and durably.

    Raises:
        OSError: it cannot be stored.
    """
    document = msgspec.to_builtins(manifest)
    document[_CHECKSUM] = _checksum(document)
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    temporary = directory / f"{MANIFEST_NAME}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.rename(directory / MANIFEST_NAME)
    sync_directory(directory)
    sync_directory(directory.parent)


def read_manifest(directory: Path) -> BackupManifest | None:
    """Read the manifest of a backup; None if it has none: it is incomplete.

    Raises:
        ManifestError: it is damaged, or of another version.
        OSError: it cannot be read.
    """
    path = directory / MANIFEST_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = msgspec.json.decode(data, type=dict[str, object])
        if document.get("format") != FORMAT:
            raise ManifestError(f"{path}: its format is {document.get('format')}, not {FORMAT}")
        if document.pop(_CHECKSUM, None) != _checksum(document):
            raise ManifestError(f"{path}: its checksum is wrong: it has been changed")
        manifest = msgspec.convert(document, BackupManifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{path}: {error}") from None
    for file in manifest.files:
        place = PurePosixPath(file.path)
        if place.is_absolute() or ".." in place.parts:
            raise ManifestError(f"{path}: {file.path} is outside of the backup")
    return manifest


def sync_directory(directory: Path) -> None:
    """Put the names in a directory on stable storage.

    Raises:
        OSError: that fails.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(PermissionError):  # a network file system may refuse it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(document: dict[str, object]) -> str:
    return sha256(msgspec.json.encode(document)).hexdigest()
