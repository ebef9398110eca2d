"""Restores a backup to a moment or a bookmark: the log is cut there, and records are rebuilt.

A start without SOW files rebuilds the records of topics in the log from the log. So a restore to an
earlier entry leaves these files out, with the tables that are ahead of the log, and cuts the
journal with that entry. That needs the log from its beginning, and topics that have never been
without it; otherwise the restore is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from amperage.wire.bookmarks import parse_moment
from server.storage.backup.journal_copy import copy_journal
from server.storage.backup.manifest import BackupFile, BackupFileKind
from server.storage.backup.writer import FILES
from server.storage.journal.files import inflate, open_source, unpack_page
from server.storage.journal.format.entry import EVENTS
from server.storage.journal.format.file_names import (
    INDEXES,
    clients_name,
    queues_name,
    replication_name,
    sibling,
)
from server.storage.journal.format.layout import PAGE, JournalFileHeader
from server.storage.journal.format.records import CHUNK, columns
from server.storage.sow.slab import slab_format as form

if TYPE_CHECKING:
    from server.storage.backup.file_copy import AbortCheck
    from server.storage.backup.manifest import BackupManifest

_JOURNALS: Final = frozenset({BackupFileKind.JOURNAL, BackupFileKind.LAST_JOURNAL})
_REBUILT: Final = frozenset({BackupFileKind.SOW, BackupFileKind.CHAINS})
_BOOKMARK: Final = re.compile(r"(\d{1,20})\|(\d{1,20})\|?", re.ASCII)
_SEPARATORS: Final = re.compile(r"[-:]")
_RECOVERY_POINT: Final = re.compile(rb"<RecoveryPoint>\s*([^<]*?)\s*</RecoveryPoint>")
_NANOSECONDS_IN_MICROSECOND: Final = 1000
_NOT_IN_LOG: Final = (1 << 64) - 1
_EVENTS: Final = sorted(EVENTS)


class PointInTimeError(Exception):
    """A backup cannot be restored to a point. The text is the reason."""


def find_last_txid(directory: Path, manifest: BackupManifest, until: str) -> int:
    """Return the last entry of a restore.

    Args:
        directory: the directory of the backup.
        manifest: its manifest.
        until: a time in UTC such as 20261130T120000Z, for the entries recorded up to it; or the
            bookmark of the last message.

    Raises:
        PointInTimeError: the log of the backup has no such point, or the text is neither.
        OSError: a journal cannot be read.
    """
    bookmark = _BOOKMARK.fullmatch(until)
    if bookmark is not None:
        return _find_bookmark(directory, manifest, int(bookmark[1]), int(bookmark[2]))
    until_ns = parse_moment(_SEPARATORS.sub("", until))
    if until_ns is None:
        raise PointInTimeError(
            f"{until} is neither a time such as 20261130T120000Z nor a bookmark such as 71|42|"
        )
    return _find_moment(directory, manifest, until_ns // _NANOSECONDS_IN_MICROSECOND)


def _find_bookmark(directory: Path, manifest: BackupManifest, client: int, sequence: int) -> int:
    for file in _journals_of(manifest):
        for records in _records_of(directory / FILES / file.path, file):
            is_found = (records["client"] == np.uint64(client)) & (
                records["sequence"] == np.uint64(sequence)
            )
            found = np.flatnonzero(is_found & np.isin(records["kind"], _EVENTS))
            if found.size:
                return int(records["txid"][found[0]])
    raise PointInTimeError(f"the backup has no message with the bookmark {client}|{sequence}|")


def _find_moment(directory: Path, manifest: BackupManifest, moment_us: int) -> int:
    for file in _journals_of(manifest):
        for records in _records_of(directory / FILES / file.path, file):
            later = np.flatnonzero(records["timestamp"] > moment_us)
            if later.size:
                txid = int(records["txid"][later[0]]) - 1
                if txid < manifest.first_txid:
                    raise PointInTimeError("the log of the backup begins after that time")
                return txid
    return manifest.last_txid


def _journals_of(manifest: BackupManifest) -> list[BackupFile]:
    """Return the journals of a backup, in the order of the log."""
    journals = [file for file in manifest.files if file.kind in _JOURNALS]
    return sorted(journals, key=lambda file: file.first_txid)


def _records_of(path: Path, file: BackupFile) -> Iterable[npt.NDArray[np.void]]:
    source, count = open_source(path), file.last_txid - file.first_txid + 1
    for start in range(0, count, CHUNK):
        yield columns(source, start, min(start + CHUNK, count))


def check_rebuild(directory: Path, manifest: BackupManifest) -> None:
    """Check that records and queues can be rebuilt from the log of a backup.

    Raises:
        PointInTimeError: they cannot.
        OSError: a file cannot be read.
    """
    journals = _journals_of(manifest)
    if not journals:
        raise PointInTimeError("the backup has no transaction log")
    if _header_of(directory / FILES / journals[0].path).number:
        raise PointInTimeError(
            f"the log of the backup begins with entry {manifest.first_txid}: journals before it "
            "were removed, so records cannot be rebuilt from it"
        )
    for file in manifest.files:
        path = directory / FILES / file.path
        if file.kind is BackupFileKind.SOW and (reason := _reason_against_rebuild(path)):
            raise PointInTimeError(f"{file.path}: {reason}")
        if file.kind is BackupFileKind.CONFIGURATION:
            _check_recovery_points(path, file)


def _header_of(path: Path) -> JournalFileHeader:
    header, _ = unpack_page(open_source(path).read(0, PAGE))
    if header is None:
        raise PointInTimeError(f"{path} has no header")
    return header


def _reason_against_rebuild(path: Path) -> str:
    """Return why the records of a SOW file are not wholly in the log; empty if they are."""
    with path.open("rb") as file:
        page = file.read(PAGE)
    unlogged_until = form.unpack_note(page[form.LOG_SLOT : form.LOG_SLOT + 64])
    if unlogged_until == _NOT_IN_LOG:
        return "its topic is not in the transaction log, so it has records of the backup alone"
    if unlogged_until:
        return "some of its records were written while its topic was not in the transaction log"
    return ""


def _check_recovery_points(path: Path, file: BackupFile) -> None:
    for match in _RECOVERY_POINT.finditer(path.read_bytes()):
        if match[1].lower() != b"epoch":
            text = match[1].decode(errors="replace")
            raise PointInTimeError(
                f"{file.path}: with the RecoveryPoint {text}, not all is rebuilt from the log"
            )


def files_until(manifest: BackupManifest, last_txid: int) -> Sequence[BackupFile]:
    """Return the files of a restore up to an entry: without those that are rebuilt."""
    journals = _journals_of(manifest)
    left_out = {file.path for file in journals[1:] if file.first_txid > last_txid}
    for journal in journals:
        if journal.last_txid > last_txid:
            left_out.update(str(sibling(Path(journal.path), kind)) for kind in INDEXES)
    ahead = {name(manifest.instance) for name in (clients_name, queues_name, replication_name)}
    return [
        file
        for file in manifest.files
        if file.kind not in _REBUILT
        and file.path not in left_out
        and Path(file.path).name not in ahead
    ]


def cut_log(target: Path, manifest: BackupManifest, last_txid: int, check: AbortCheck) -> None:
    """Cut the restored log behind an entry.

    Args:
        target: the directory of the restore.
        manifest: the manifest of the backup.
        last_txid: the entry.
        check: called between two pieces of a file.

    Raises:
        OSError: a journal cannot be read or written.
    """
    journals = _journals_of(manifest)
    file = next(journal for journal in reversed(journals) if journal.first_txid <= last_txid)
    if last_txid >= file.last_txid and file.kind is BackupFileKind.LAST_JOURNAL:
        return
    journal_directory = (target / journals[-1].path).parent
    path = target / file.path
    plain = path
    if path.suffix == ".gz":
        plain = path.with_suffix(".inflated")
        plain.write_bytes(inflate(path))
    temporary = path.with_name(f"{path.name}.cut")
    copy_journal(plain, _header_of(plain), last_txid, temporary, check)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for obsolete in {path, plain}:
        obsolete.unlink()
    journal_directory.mkdir(parents=True, exist_ok=True)
    temporary.rename(journal_directory / path.name.removesuffix(".gz"))
