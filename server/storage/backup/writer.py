"""Writes a backup: copies files into its directory, and stores the manifest at the end.

Every call may take long: a thread of its own makes them, one after the other.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.spec.common import DIRECTORY_MODE, FILE_MODE
from server.storage.backup.catalogue import make_backup_directory, newest_backup
from server.storage.backup.file_copy import (
    AbortCheck,
    CopiedFile,
    copy_file,
    file_identity,
    hard_link,
    hash_file,
    remove_if_present,
)
from server.storage.backup.journal_copy import copy_journal
from server.storage.backup.manifest import (
    FORMAT,
    BackupFile,
    BackupFileKind,
    BackupManifest,
    store_manifest,
    sync_directory,
    utc_text,
)
from server.storage.backup.sow_copy import copy_sow_file
from server.storage.journal.format.file_names import INDEXES, sibling
from server.storage.journal.format.layout import JournalFileHeader

if TYPE_CHECKING:
    from server.storage.journal import Journal
    from server.storage.journal.files import JournalFile

FILES: Final = "files"
"""The directory, in that of a backup, with the copied files."""
OUTSIDE: Final = "outside"
"""The directory of files from outside the instance's working directory."""

_MAX_MOVES: Final = 10
"""Number of times that a journal may be moved or compressed while it is copied."""


class BackupWriter:
    """Writes one backup.

    Args:
        directory: the directory of all backups; it is created if it does not exist.
        instance: name of the instance.
        version: version of the server.
        check: called between two pieces of a file; an exception that it raises ends the backup.

    Attributes:
        path: the directory of this backup.
        files: the files so far.

    Raises:
        OSError: the directory cannot be created.
    """

    def __init__(self, directory: Path, instance: str, version: str, check: AbortCheck) -> None:
        self.path: Final = make_backup_directory(directory, instance)
        self.files: Final[list[BackupFile]] = []
        self._instance = instance
        self._version = version
        self._check = check
        self._begun_s = time.time()
        self._working_directory = Path.cwd()
        self._configuration = ""
        previous = newest_backup(directory, instance)
        self._previous_path = None if previous is None else previous.path
        files = () if previous is None or previous.manifest is None else previous.manifest.files
        self._previous_files = {file.path: file for file in files if file.identity}

    @property
    def id(self) -> str:
        """The name of the backup."""
        return self.path.name

    def add_configuration(self, files: tuple[str, ...]) -> None:
        """Copy the configuration file, and the files that it includes.

        Raises:
            OSError: one of them cannot be copied.
        """
        for number, name in enumerate(files):
            path = self._add_copy(Path(name), BackupFileKind.CONFIGURATION)
            if number == 0:
                self._configuration = path

    def add_file(self, source: Path, kind: BackupFileKind) -> None:
        """Copy a file, if it exists.

        Raises:
            OSError: it cannot be copied.
        """
        if source.exists():
            self._add_copy(source, kind)

    def _add_copy(self, source: Path, kind: BackupFileKind) -> str:
        path = self._place_of(source)
        self._add(source, path, kind, copy_file(source, self._target(path), self._check))
        return path

    def add_sow_file(self, source: Path) -> None:
        """Copy the records of a SOW file, as they are at its commit point.

        Raises:
            SlabsReusedError: its slabs were cleaned meanwhile; it may be tried again.
            OSError: it cannot be copied.
        """
        path = self._place_of(source)
        target = self._target(path)
        try:
            copied = copy_sow_file(source, target, self._check)
        except OSError:
            remove_if_present(target)
            raise
        self._add(source, path, BackupFileKind.SOW, copied)

    def add_statistics(self, source: Path) -> None:
        """Copy a database of statistics with its last complete sample, if it exists.

        Raises:
            OSError: it cannot be copied.
        """
        if not source.exists():
            return
        path = self._place_of(source)
        target = self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        uri = f"{source.absolute().as_uri()}?mode=ro"
        try:
            with (
                closing(sqlite3.connect(uri, uri=True)) as original,
                closing(sqlite3.connect(target)) as copy,
            ):
                original.backup(copy)
        except sqlite3.Error as error:
            raise OSError(f"{source}: {error}") from error
        _sync(target)
        self._add(source, path, BackupFileKind.STATISTICS, hash_file(target, self._check))

    def add_journals(self, journal: Journal, last_txid: int) -> None:
        """Add the files of the log up to an entry on stable storage.

        Full files that are in the previous backup, too, are links to it; others are links to the
        instance's files, or copies where the file system cannot link them.

        Args:
            journal: the log.
            last_txid: the last entry.

        Raises:
            OSError: a file cannot be linked or copied.
        """
        for file in journal.files:
            if file.first_txid > last_txid and file.number > journal.files[0].number:
                return
            file_last_txid = last_txid + 1 if file.end_txid is None else file.end_txid - 1
            if file_last_txid <= last_txid and journal.is_finalized(file.number):
                self._add_full_journal(journal, file)
            else:
                self._add_last_journal(file, min(last_txid, file_last_txid))

    def _add_last_journal(self, file: JournalFile, last_txid: int) -> None:
        header = JournalFileHeader(
            file.number, file.size, file.first_txid, file.created, self._instance
        )
        path = self._place_of(file.path)
        copied = copy_journal(file.path, header, last_txid, self._target(path), self._check)
        kind = BackupFileKind.LAST_JOURNAL
        self._add(file.path, path, kind, copied, txids=(file.first_txid, last_txid))

    def _add_full_journal(self, journal: Journal, file: JournalFile) -> None:
        """Add a full journal with its indexes; it may be archived or compressed meanwhile."""
        for _ in range(_MAX_MOVES):
            txids = file.first_txid, (file.end_txid or file.first_txid) - 1
            try:
                self._add_closed_file(file.path, BackupFileKind.JOURNAL, txids)
            except FileNotFoundError:
                current = next((each for each in journal.files if each.number == file.number), None)
                if current is None:  # its removal had begun before the backup
                    return
                file = current
                continue
            for kind in INDEXES:
                index = sibling(file.path, kind)
                try:
                    self._add_closed_file(index, BackupFileKind.JOURNAL_INDEX)
                except FileNotFoundError:
                    continue  # a start makes it again
            return
        raise FileNotFoundError(f"{file.path} is moved again and again")

    def _add_closed_file(
        self, source: Path, kind: BackupFileKind, txids: tuple[int, int] = (0, 0)
    ) -> None:
        """Add a file that is not written to any more, by a link if possible.

        Raises:
            FileNotFoundError: it does not exist any more.
            OSError: it cannot be linked or copied.
        """
        path = self._place_of(source)
        target, identity = self._target(path), file_identity(source)
        previous = self._previous_files.get(path)
        if previous is not None and previous.identity == identity and self._previous_path:
            stored = self._previous_path / FILES / path
            if _has_size(stored, previous.size) and hard_link(stored, target):
                copied = CopiedFile(previous.size, previous.sha256)
                self._add(source, path, kind, copied, identity, txids)
                return
        if hard_link(source, target):
            copied = hash_file(target, self._check)
        else:
            copied = copy_file(source, target, self._check)
        self._add(source, path, kind, copied, identity, txids)

    def finish(
        self, first_txid: int, last_txid: int, last_us: int, bookmark: str
    ) -> BackupManifest:
        """Store the manifest: from now on the backup is complete.

        Args:
            first_txid: the first entry of the log; 0 without a log.
            last_txid: the last one in the backup.
            last_us: when that was recorded, in microseconds since 1970; 0 without entries.
            bookmark: the bookmark of the last message; empty without one.

        Raises:
            OSError: it cannot be stored.
        """
        for directory in {self._target(file.path).parent for file in self.files}:
            while directory != self.path.parent:
                sync_directory(directory)
                directory = directory.parent
        manifest = BackupManifest(
            FORMAT,
            self.id,
            self._instance,
            self._version,
            utc_text(self._begun_s),
            utc_text(time.time()),
            str(self._working_directory),
            self._configuration,
            first_txid,
            last_txid,
            utc_text(last_us / 1e6) if last_us else "",
            bookmark,
            tuple(self.files),
        )
        store_manifest(self.path, manifest)
        return manifest

    def _add(
        self,
        source: Path,
        path: str,
        kind: BackupFileKind,
        copied: CopiedFile,
        identity: str = "",
        txids: tuple[int, int] = (0, 0),
    ) -> None:
        original = str(self._working_directory / source)
        self.files.append(BackupFile(path, kind, original, *copied, identity, *txids))

    def _place_of(self, source: Path) -> str:
        """Return the place of a file: its path from the instance's working directory, if below."""
        full = Path(os.path.normpath(self._working_directory / source))
        if full.is_relative_to(self._working_directory):
            return str(full.relative_to(self._working_directory))
        return str(Path(OUTSIDE, *full.parts[1:]))

    def _target(self, path: str) -> Path:
        return self.path / FILES / path


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
