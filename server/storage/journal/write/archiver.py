"""Archives, compresses and removes full journal files, while the log is in use.

Every operation syncs a copy before that replaces the original, so that a crash leaves either, or
both, and an intact log. After an interrupted operation both forms have the same contents: recovery
takes one of them, and removing a file removes all its forms.

Operations run one at a time. The duration depends on the file size; `give_up` aborts an operation
at its next piece.
"""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from server.storage.journal.errors import JournalError, reason
from server.storage.journal.files import FileTable, JournalFile
from server.storage.journal.format.file_names import (
    COMPRESSED,
    INDEXES,
    JOURNAL,
    TEMPORARY_SUFFIX,
    journal_name,
    sibling,
)
from server.storage.journal.storage import Disk

_PIECE: Final = 1 << 20
_LEVEL: Final = 6
_SYNC_EVERY: Final = 16 << 20
"""Bytes after which a copy is synced: a commit of the log must not wait for all of it."""


class Archiver:
    """Moves, compresses and removes the files of a log.

    Args:
        instance: the instance's name.
        directory: directory of the files in use.
        archive: directory of archived files, if there is one.
        table: the files of the log.
        disk: gives access to them.
        is_finalized: predicate: true for a full file to which nothing more has to be done.
        publishers_txid: returns the txid up to which the publishers' sequences are stored
            separately.
        record_removal: records the last messages of a file, before it is removed.
    """

    def __init__(
        self,
        instance: str,
        directory: Path,
        archive: Path | None,
        table: FileTable,
        disk: Disk,
        is_finalized: Callable[[int], bool],
        publishers_txid: Callable[[], int],
        record_removal: Callable[[JournalFile], None],
    ) -> None:
        self._instance = instance
        self._directory = directory
        self._archive = archive
        self._table = table
        self._disk = disk
        self._is_finalized = is_finalized
        self._publishers_txid = publishers_txid
        self._record_removal = record_removal
        self._is_aborted = False
        self.lock: Final = threading.Lock()

    def abort(self) -> None:
        """Abort the operation under way, leaving its file as it was, and refuse further ones."""
        self._is_aborted = True

    def archive(self, number: int) -> None:
        """Move a full file and its indexes to the archive directory.

        Raises:
            JournalError: it cannot be moved; it is unchanged.
        """
        archive = self._archive
        if archive is None:
            raise JournalError(
                "there is nowhere to archive journals to: "
                "the configuration has no JournalArchiveDirectory"
            )
        with self.lock:
            file = self._find_full_file(number)
            if file.path.parent == archive:
                return
            with _convert_errors(file, "archived"):
                for path in (*self._index_paths(file), file.path):
                    self._copy_file(path, archive / path.name)
                self._table.update(number, path=archive / file.path.name)
                for path in (*self._index_paths(file), file.path):
                    self._disk.remove(path)

    def compress(self, number: int) -> None:
        """Replace a full file by its compressed form.

        Raises:
            JournalError: it cannot be compressed; it is unchanged.
        """
        with self.lock:
            file = self._find_full_file(number)
            if file.path.suffix == ".gz":
                return
            target = sibling(file.path, COMPRESSED)

            def compress(original: IO[bytes], raw: IO[bytes]) -> None:
                with gzip.GzipFile("", "wb", _LEVEL, raw, 0) as packed:
                    self._copy_bytes(original, packed.write, raw)

            with _convert_errors(file, "compressed"):
                self._write_atomically(file.path, target, compress)
                self._table.update(number, path=target)
                self._disk.remove(file.path)

    def remove(self, number: int) -> None:
        """Remove the oldest file in all its forms, and its indexes.

        Raises:
            JournalError: it is not the oldest, or not full, or cannot be removed; it is still
                part of the log.
        """
        with self.lock:
            file = self._find_full_file(number)
            oldest = self._table.files[0]
            if oldest.number != number:
                raise JournalError(
                    f"{file.path}: cannot be removed before {oldest.path.name}, which is older: "
                    "the log must not have gaps"
                )
            if file.end_txid is None or self._publishers_txid() < file.end_txid - 1:
                raise JournalError(
                    f"{file.path}: cannot be removed before what it says about its publishers is "
                    "stored elsewhere"
                )
            with _convert_errors(file, "removed"):
                self._record_removal(file)
            self._table.remove(number)
            try:
                with _convert_errors(file, "removed"):
                    for path in self._all_paths(file):
                        self._disk.remove(path)
                    self._disk.sync_directory(file.path.parent)
            except JournalError:
                self._table.restore_first(file)
                raise

    def _find_full_file(self, number: int) -> JournalFile:
        if self._is_aborted:
            raise JournalError("the instance is stopping")
        file = self._table.find(number)
        if file is None:
            raise JournalError(f"the log has no journal file with number {number}")
        if not self._is_finalized(number):
            raise JournalError(f"{file.path}: is being written to; only full files can be touched")
        return file

    def _index_paths(self, file: JournalFile) -> list[Path]:
        paths = [sibling(file.path, kind) for kind in INDEXES]
        return [path for path in paths if path.exists()]

    def _all_paths(self, file: JournalFile) -> list[Path]:
        """Return all paths of a file and its indexes; last the one that recovery would use."""
        paths = [
            directory / journal_name(self._instance, file.number, kind)
            for directory in (self._archive, self._directory)
            if directory is not None
            for kind in (*INDEXES, COMPRESSED, JOURNAL)
        ]
        return [*(path for path in paths if path != file.path), file.path]

    def _copy_file(self, path: Path, target: Path) -> None:
        def copy(original: IO[bytes], raw: IO[bytes]) -> None:
            self._copy_bytes(original, raw.write, raw)

        self._write_atomically(path, target, copy)

    def _write_atomically(
        self, path: Path, target: Path, fill: Callable[[IO[bytes], IO[bytes]], None]
    ) -> None:
        """Make a file from another one, with its times, durably and atomically."""
        temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
        try:
            with path.open("rb") as original, temporary.open("wb") as raw:
                fill(original, raw)
                raw.flush()
                shutil.copystat(path, temporary)
                os.fsync(raw.fileno())
            self._disk.rename(temporary, target)
        except (OSError, JournalError):
            self._disk.remove(temporary)
            raise

    def _copy_bytes(
        self, original: IO[bytes], write: Callable[[bytes], object], raw: IO[bytes]
    ) -> None:
        safe = 0
        while piece := original.read(_PIECE):
            if self._is_aborted:
                raise JournalError("given up: the instance is stopping")
            write(piece)
            if raw.tell() - safe >= _SYNC_EVERY:
                safe = raw.tell()
                raw.flush()
                os.fdatasync(raw.fileno())


@contextmanager
def _convert_errors(file: JournalFile, operation: str) -> Iterator[None]:
    """Convert an OSError into a JournalError that names the file and the failed operation."""
    try:
        yield
    except OSError as problem:
        raise JournalError(f"{file.path}: cannot be {operation}: {reason(problem)}") from problem
