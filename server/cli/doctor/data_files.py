"""Checks of the files of an instance: a listing, and whether the instance could read them.

Of journals, only the first page is read, which names the instance and the file's place in the log;
the entries are not. Nothing is written or locked, so that a server may be running.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from config_schema.spec import InstanceSpec
from server.admin.diagnosis.directories import InstanceDirectory
from server.app.wiring.foreign_files import OPTION, find_foreign_files
from server.app.wiring.provision import ProvisionError
from server.app.wiring.provision_journal import journal_settings
from server.cli.amps_file import identify
from server.cli.doctor.findings import Examination
from server.storage.journal.files import read_page, unpack_page
from server.storage.journal.format.file_names import TRUNCATED_SUFFIX, journal_files
from server.storage.journal.format.layout import PAGE, JournalFileHeader, JournalFormatError
from server.storage.journal.recovery.foreign_files import ForeignJournalKind

AREA: Final = "files"
_MAX_LISTED: Final = 10_000
_MAX_NAMED: Final = 5
_ADVICE: Final = {
    ForeignJournalKind.FOREIGN: (
        f"give the instance directories of its own, or start it with {OPTION}"
    ),
    ForeignJournalKind.DAMAGED: "move completely damaged files to another directory, and keep them",
    ForeignJournalKind.NEWER_VERSION: (
        "run the later version that has written them; docs/upgrading.md has the way back"
    ),
}
_RENAMED_MARKS: Final = (TRUNCATED_SUFFIX, ".damaged-", ".foreign-")
"""Parts of the names of files that the server has set aside."""


def examine(
    spec: InstanceSpec, directories: Sequence[InstanceDirectory], examination: Examination
) -> None:
    """Check the files of an instance.

    Args:
        spec: the instance.
        directories: the directories that it writes to.
        examination: collects the findings.
    """
    listing = [file for directory in directories for file in _list(directory)]
    if len(listing) > _MAX_LISTED:
        examination.add_attention(
            AREA,
            "listing",
            f"{len(listing):,} files",
            f"the first {_MAX_LISTED:,} are listed",
            "remove files that are not needed any more",
        )
    examination.facts[AREA] = listing[:_MAX_LISTED]
    _judge_foreign_files(spec, examination)
    _judge_renamed_files([str(file["path"]) for file in listing], examination)
    if spec.transaction_log is not None:
        _judge_journals(spec, examination)


def _header(path: Path) -> JournalFileHeader | None:
    """Return the header of a journal; None if it has not been taken into use.

    Raises:
        JournalFormatError: it is damaged.
        OSError: it cannot be read.
    """
    page = read_page(path)
    if len(page) < PAGE:
        raise JournalFormatError(f"it has {len(page):,} bytes, less than a journal file")
    return unpack_page(page)[0]


def _list(directory: InstanceDirectory) -> Iterator[dict[str, object]]:
    """Yield facts of the files in a directory, not recursively."""
    now = time.time()
    try:
        names = sorted(os.listdir(directory.path))
    except OSError:
        return  # disks.py reports this
    for name in names:
        path = directory.path / name
        try:
            about = path.lstat()
            kind = str(identify(path)) if path.is_file() else "no file"
        except OSError as error:
            yield {"path": str(path), "for": directory.purpose, "problem": error.strerror}
            continue
        yield {
            "path": str(path),
            "for": directory.purpose,
            "kind": kind,
            "size": about.st_size,
            "allocated": about.st_blocks * 512,
            "age_seconds": round(now - about.st_mtime),
            "mode": f"{about.st_mode & 0o7777:04o}",
            "owner": about.st_uid,
        }


def _judge_foreign_files(spec: InstanceSpec, examination: Examination) -> None:
    try:
        files = find_foreign_files(spec)
    except ProvisionError as error:
        examination.add_attention(
            AREA,
            "files of others",
            str(error),
            "whether a start would find its own files cannot be told",
            "run amps-doctor as the user of the server, or as root",
        )
        return
    if not files:
        examination.add_ok(AREA, "files of others", "none in the places of the instance's own")
        return
    examination.add_wrong(
        AREA,
        "files of others",
        "; ".join(f"{file.path} {file.description}" for file in files[:_MAX_NAMED]),
        f"{len(files)} files are in the way, and the instance does not start",
        _ADVICE[max(files, key=lambda file: file.kind.value).kind],
    )


def _judge_renamed_files(paths: Sequence[str], examination: Examination) -> None:
    aside = [
        path for path in paths if any(mark in os.path.basename(path) for mark in _RENAMED_MARKS)
    ]
    if aside:
        examination.add_attention(
            AREA,
            "files that were set aside",
            ", ".join(aside[:_MAX_NAMED]),
            f"{len(aside)} files were damaged, unfinished or foreign when the server met them",
            "the log of that start says what they held; keep them until that is understood",
        )


def _judge_journals(spec: InstanceSpec, examination: Examination) -> None:
    log = spec.transaction_log
    if log is None:
        raise AssertionError("it is looked at only where there is one")
    settings = journal_settings(spec, log)
    directories = [one for one in (settings.archive, settings.directory) if one is not None]
    files: dict[int, Path] = {}
    for directory in directories:
        files |= journal_files(directory, spec.name)
    bad, blank = [], 0
    headers: dict[int, JournalFileHeader] = {}
    for number, path in sorted(files.items()):
        try:
            header = _header(path)
        except (JournalFormatError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            bad.append(f"{path}: {why}")
            continue
        if header is None:
            blank += 1
        elif header.instance != spec.name:
            bad.append(f"{path}: it belongs to the instance {header.instance!r}")
        else:
            headers[number] = header
    value = f"{len(headers)} in use, {blank} ready for use"
    if bad:
        examination.add_wrong(
            AREA,
            "headers of journals",
            f"{value}, {len(bad)} that cannot be read as such",
            "; ".join(bad[:_MAX_NAMED]),
            "the next start makes a header again from the entries, if these are intact;"
            " copy the directory before that",
        )
    else:
        examination.add_ok(AREA, "headers of journals", value)
    numbers = sorted(headers)
    gaps = [
        f"{last_number} to {next_number}"
        for last_number, next_number in pairwise(numbers)
        if next_number != last_number + 1
    ]
    if gaps and not bad:
        examination.add_wrong(
            AREA,
            "sequence of journals",
            f"missing between {', '.join(gaps[:_MAX_NAMED])}",
            "files are missing in the middle of the log, and the instance does not start",
            "bring them back from where they were moved to, or from a backup",
        )
