"""Verifies a backup: checksums of its files, and whether journals and SOW files are readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from server.storage.backup.file_copy import hash_file
from server.storage.backup.manifest import BackupFileKind
from server.storage.backup.writer import FILES
from server.storage.journal.files import open_unknown, unpack_page
from server.storage.journal.format.layout import PAGE, JournalFormatError
from server.storage.journal.format.records import CHUNK, read_bodies, read_rows
from server.storage.sow.slab.slab_file import DamagedFileError, OtherVersionError, SlabFile
from server.storage.sow.slab.slab_scan import scan

if TYPE_CHECKING:
    from server.storage.backup.manifest import BackupFile, BackupManifest
    from server.storage.journal.storage import ByteSource

_JOURNALS = frozenset({BackupFileKind.JOURNAL, BackupFileKind.LAST_JOURNAL})


class BackupProblem(NamedTuple):
    """A problem of a backup.

    Attributes:
        path: the file, in the backup; empty for the backup as a whole.
        text: the problem.
    """

    path: str
    text: str


def verify_backup(
    directory: Path, manifest: BackupManifest, check: Callable[[], None]
) -> Iterator[BackupProblem]:
    """Find the problems of a backup.

    Args:
        directory: the directory of the backup.
        manifest: its manifest.
        check: called often; an exception that it raises ends the verification.
    """
    for file in manifest.files:
        path = directory / FILES / file.path
        problem = _check_content(path, file, check) or _check_readability(path, file)
        if problem:
            yield BackupProblem(file.path, problem)
    yield from _check_log(manifest)


def _check_content(path: Path, file: BackupFile, check: Callable[[], None]) -> str:
    try:
        found = hash_file(path, check)
    except OSError as error:
        return error.strerror or str(error)
    if found.size != file.size:
        return f"it has {found.size} bytes, not {file.size}"
    return "" if found.sha256 == file.sha256 else "its SHA-256 is another one than at the backup"


def _check_readability(path: Path, file: BackupFile) -> str:
    """Return why a file with the right checksum cannot be read: the original was damaged."""
    try:
        if file.kind in _JOURNALS:
            return _check_journal(path, file)
        if file.kind is BackupFileKind.SOW:
            _check_sow_file(path)
    except (OSError, JournalFormatError, DamagedFileError, OtherVersionError) as error:
        return str(error)
    return ""


def _check_journal(path: Path, file: BackupFile) -> str:
    opened = open_unknown(path)
    header, _ = unpack_page(opened.source.read(0, PAGE))
    if header is None:
        return "it has no header"
    if not opened.is_intact or opened.missing_bytes:
        return "it is cut"
    damaged = 0
    for start in range(0, file.last_txid - file.first_txid + 1, CHUNK):
        stop = min(start + CHUNK, file.last_txid - file.first_txid + 1)
        damaged += _count_damaged_entries(opened.source, header.first_txid, start, stop)
    return f"{damaged} of its entries are damaged" if damaged else ""


def _count_damaged_entries(source: ByteSource, first_txid: int, start: int, stop: int) -> int:
    rows = read_rows(source, first_txid, start, stop)
    intact = [row for row in rows if row is not None]
    return len(rows) - len(intact) + sum(body is None for body in read_bodies(source, intact))


def _check_sow_file(path: Path) -> None:
    """Read all entries of a SOW file.

    Raises:
        DamagedFileError: one of them is not readable.
    """
    file = SlabFile(path, writable=False)
    try:
        scan(file, lambda _location, _data: None)
    finally:
        file.close()


def _check_log(manifest: BackupManifest) -> Iterator[BackupProblem]:
    """Find gaps between the journals."""
    journals = [file for file in manifest.files if file.kind in _JOURNALS]
    journals.sort(key=lambda file: file.first_txid)
    yield from _find_gaps(journals)
    if journals and journals[-1].last_txid != manifest.last_txid:
        yield BackupProblem("", f"no journal has its last entry, {manifest.last_txid}")


def _find_gaps(journals: Sequence[BackupFile]) -> Iterator[BackupProblem]:
    for before, after in pairwise(journals):
        if after.first_txid != before.last_txid + 1:
            yield BackupProblem(
                after.path,
                f"it begins with entry {after.first_txid}, and the journal before it ends with "
                f"{before.last_txid}",
            )
