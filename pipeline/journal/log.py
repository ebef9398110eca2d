"""A snapshot of the journal files of a directory, which a query reads.

The snapshot is taken at planning. It looks up the files by name, and fixes the end of the file that
the server is writing to; later entries do not belong to the query. The files may be moved to the
archive, or compressed, before a task opens them: `open_journal` looks for them there.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from pipeline.errors import JournalDamageError, PipelineError, option_error
from pipeline.journal.tail import entries_written
from server.storage.journal.clock_steps import ClockSteps, unpack_steps
from server.storage.journal.files import (
    JournalFile,
    open_source,
    read_page,
    salvage_header,
    unpack_page,
)
from server.storage.journal.format.file_names import (
    COMPRESSED,
    JOURNAL,
    instances_with_journals,
    journal_files,
    steps_name,
)
from server.storage.journal.format.layout import (
    BODY_START,
    PAGE,
    TIMESTAMP,
    FileSeal,
    JournalFileHeader,
    JournalFormatError,
    JournalVersionError,
)
from server.storage.journal.format.records import read_rows, slots
from server.storage.journal.storage import ByteSource, FileSource

_GZIP: Final = 16 + zlib.MAX_WBITS
_CHUNK_SIZE: Final = 1 << 20
_MAX_LIST_ATTEMPTS: Final = 3  # to list the files while the server moves them


@dataclass(frozen=True, slots=True)
class JournalSnapshot:
    """A snapshot of the journals of one instance.

    Attributes:
        instance: its name.
        steps: the places where the wall clock was set.
        files: the files in order. All have a seal: that of the last one has the current end.
    """

    instance: str
    files: tuple[JournalFile, ...]
    steps: ClockSteps


SealedFiles = dict[Path, tuple[tuple[int, int, int], JournalFile]]
"""Files to which no entries are added any more, by their paths, each with its inode, size and time
of modification, which detect another file of the same name."""


def snapshot(
    directory: Path,
    archive: Path | None = None,
    instance: str = "",
    sealed: SealedFiles | None = None,
) -> list[JournalSnapshot]:
    """Return the current journals.

    Args:
        directory: a directory of journal files; or a single file.
        archive: the directory of archived journals.
        instance: the instance of the journals; all if empty.
        sealed: files that need not be opened; sealed files that are found are added.

    Raises:
        PipelineError: there are none, one is missing or cannot be read.
    """
    sealed = {} if sealed is None else sealed
    if directory.is_file():
        file = _describe(directory, sealed)
        return [] if file is None else [_log(directory.parent, _instance_of(directory), (file,))]
    if not directory.is_dir():
        raise PipelineError(f"{directory}: no such directory or journal file")
    if archive is not None and not archive.is_dir():
        raise option_error("archive", archive, "no such directory")
    names = {instance} if instance else _instances(directory, archive)
    logs = [
        _log(directory, name, _files(directory, archive, name, sealed)) for name in sorted(names)
    ]
    if not any(log.files for log in logs):
        whose = f" of the instance {instance}" if instance else ""
        raise PipelineError(f"{directory}: has no journal files{whose}")
    return [log for log in logs if log.files]


def _log(directory: Path, instance: str, files: tuple[JournalFile, ...]) -> JournalSnapshot:
    try:
        data = (directory / steps_name(instance)).read_bytes()
        steps = unpack_steps(data)
    except (OSError, JournalFormatError):  # use the times unchanged
        steps = ClockSteps()
    return JournalSnapshot(instance, files, steps)


def open_journal(path: Path, archive: Path | None) -> ByteSource:
    """Open a journal file, which may have been moved since.

    Args:
        path: its path when the query was planned.
        archive: the directory where it may have been moved since.

    Raises:
        PipelineError: it is gone, or cannot be read.
    """
    name = path.name.removesuffix(".gz")
    folders = [path.parent, *([archive] if archive is not None else [])]
    places = [path, *(folder / (name + kind) for folder in folders for kind in ("", ".gz"))]
    for place in dict.fromkeys(places):
        try:
            return inflated(place) if place.suffix == ".gz" else FileSource(place)
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise _no_file(place, problem) from problem
    raise JournalDamageError(f"{path}: the journal file was removed after the query was planned")


def inflated(path: Path) -> ByteSource:
    """Decompress a journal file into a temporary file without a name.

    Raises:
        OSError: it cannot be read, or there is no space.
        PipelineError: it is damaged.
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
    decompressor = zlib.decompressobj(_GZIP)
    with path.open("rb") as file, tempfile.NamedTemporaryFile(dir=folder) as plain:
        while chunk := file.read(_CHUNK_SIZE):
            try:
                plain.write(decompressor.decompress(chunk))
            except zlib.error as problem:
                raise JournalDamageError(
                    f"{path}: damaged near byte {file.tell() - len(chunk)}: {problem}"
                ) from problem
        if not decompressor.eof:
            raise JournalDamageError(f"{path}: truncated: it ends at byte {file.tell()}")
        plain.flush()
        return FileSource(Path(plain.name))


def _no_file(path: Path, problem: OSError) -> PipelineError:
    return PipelineError(f"{path}: {problem.strerror or problem}")


def _instances(directory: Path, archive: Path | None) -> set[str]:
    instances = instances_with_journals(directory)
    return instances | instances_with_journals(archive) if archive is not None else instances


def _files(
    directory: Path, archive: Path | None, instance: str, sealed: SealedFiles
) -> tuple[JournalFile, ...]:
    for attempt in range(_MAX_LIST_ATTEMPTS):
        # A file moved meanwhile is found twice; listing in the other order might miss it.
        paths = journal_files(directory, instance)
        archived = journal_files(archive, instance) if archive is not None else {}
        paths = {**archived, **paths}
        try:
            descriptions = [_describe(paths[number], sealed) for number in sorted(paths)]
        except FileNotFoundError as problem:
            if attempt == _MAX_LIST_ATTEMPTS - 1:
                raise _no_file(Path(problem.filename), problem) from problem
            continue
        except OSError as problem:
            raise _no_file(Path(problem.filename or directory), problem) from problem
        _check_beginning([paths[number] for number in sorted(paths)], descriptions)
        files = tuple(file for file in descriptions if file is not None)
        _check_chain(directory, files)
        return files
    raise AssertionError("unreachable")


def _check_beginning(paths: Iterable[Path], files: Sequence[JournalFile | None]) -> None:
    """Check that no file is empty before the first file in use: only the last ones may be.

    Raises:
        PipelineError: a file is, so that its contents are lost.
    """
    in_use = [place for place, file in enumerate(files) if file is not None]
    for place, (path, file) in enumerate(zip(paths, files, strict=True)):
        if file is None and in_use and place < in_use[0]:
            raise JournalDamageError(
                f"{path}: it is empty, and later journal files are not: its entries are lost;"
                " restore it, or remove the file to read the later ones"
            )


def _check_chain(directory: Path, files: Iterable[JournalFile]) -> None:
    for before, after in pairwise(files):
        if before.number + 1 != after.number or before.end_txid != after.first_txid:
            raise JournalDamageError(
                f"{directory}: the transaction log has a gap: {before.path.name} ends before entry "
                f"{before.end_txid}, and {after.path.name} begins with {after.first_txid}; restore"
                " the missing files, or give the directory of archived journals (option archive)"
            )


def _describe(path: Path, sealed: SealedFiles) -> JournalFile | None:
    """Return the description of a file; None if it has not been taken into use."""
    stat = path.stat()
    mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    known = sealed.get(path)
    if known is not None and known[0] == mark:
        return known[1]
    source: ByteSource | None = None
    try:
        header, seal = unpack_page(read_page(path))
    except JournalFormatError as problem:
        source, seal, header = open_source(path), None, None
        if not isinstance(problem, JournalVersionError):
            header = salvage_header(source, _number_of(path), "")
        if header is None:
            raise JournalDamageError(f"{path}: {problem}") from problem
    if header is None and path.suffix == ".gz":
        raise JournalDamageError(f"{path}: damaged: it does not begin as a compressed journal file")
    if header is None:
        return None
    if path.suffix != ".gz" and stat.st_size != header.size:
        raise JournalDamageError(
            f"{path}: truncated: it has {stat.st_size} bytes, expected {header.size}"
        )
    is_sealed = seal is not None
    if seal is None:
        seal = _written(source or open_source(path), header)
    file = JournalFile(
        header.number, path, header.size, header.first_txid, header.created, seal=seal
    )
    if is_sealed:
        sealed[path] = (mark, file)
    return file


def _written(source: ByteSource, header: JournalFileHeader) -> FileSeal:
    """Return a seal with the current end of a file that is not full."""
    count = entries_written(source, header.first_txid)
    ends = [read_rows(source, header.first_txid, n, n + 1)[0] for n in (0, count - 1) if count]
    first, last = (ends[0], ends[-1]) if ends else (None, None)
    return FileSeal(
        min(count, slots(source.size)),
        PAGE if last is None else last[BODY_START],
        count,
        header.created if first is None else first[TIMESTAMP],
        2**63 - 1 if last is None else last[TIMESTAMP],
    )


def _instance_of(path: Path) -> str:
    header, _ = unpack_page(read_page(path))
    return "" if header is None else header.instance


def _number_of(path: Path) -> int:
    stem = path.name.removesuffix(COMPRESSED).removesuffix(JOURNAL)
    return int(stem.rpartition(".")[2]) if stem.rpartition(".")[2].isdigit() else 0
