"""Detects files that have the names of this program's journals, but other contents.

Journals are named as AMPS names its own. An operator who starts an instance in a directory of
AMPS must not lose AMPS's journals. Nor may a journal of this program that is damaged throughout be
taken for an empty file. So a file is *blank*, and may be overwritten, only if its first page is all
zeros.

An intact journal with an unknown format version is not touched either: a later program has
written it, and would lose the data that this one overwrites.

A file with intact entries is accepted even if its first page is neither a header nor blank: the
header is rebuilt from the entries. So is the torn header page that a power failure may leave of a
file's first commit, which is written sector by sector. Indexes and the table of publishers can be
rebuilt: beside a journal of this program they are accepted, however damaged.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from server.storage.journal import clock_steps, index, publisher_table, queue_points, removal_record
from server.storage.journal.files import inflate, open_source, read_page, salvage_header
from server.storage.journal.format import layout, side_files
from server.storage.journal.format.file_names import (
    INDEX,
    INDEXES,
    TOPIC_INDEX,
    clients_name,
    kind_of,
    list_journal_files,
    queues_name,
    removal_record_name,
    replication_name,
    steps_name,
)
from server.storage.journal.format.layout import (
    JournalFileHeader,
    JournalFormatError,
    JournalVersionError,
    unpack_header,
)

MIN_JOURNAL_FILE_SIZE: Final = 1 << 20
"""Minimum size of a journal file in bytes."""

_OF_AMPERAGE: Final = "of Amperage, and AMPS's own files cannot be read"
_GZIP: Final = b"\x1f\x8b"
_SECTOR: Final = 512
_HALF_PAGE: Final = layout.PAGE // 2
_VERSION_SIZE: Final = 2
_TYPES: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class ForeignJournalKind(Enum):
    """The kind of a `ForeignJournalFile`."""

    FOREIGN = auto()
    """A file of another program."""
    DAMAGED = auto()
    """A damaged file of this program."""
    NEWER_VERSION = auto()
    """A file of a later version of this program."""


class ForeignJournalFile(NamedTuple):
    """A file with contents that do not fit its name.

    Attributes:
        path: path of the file.
        problem: the problem, as text for operators.
        kind: the kind of file.
    """

    path: Path
    problem: str
    kind: ForeignJournalKind = ForeignJournalKind.FOREIGN


class _SidecarFormat(NamedTuple):
    """The name, the magic word and the version of a kind of file beside the journals."""

    name: str
    magic: bytes
    version: int


_SIDE_FILES: Final = {
    INDEX: _SidecarFormat("index of a journal", index.INDEX_MAGIC, index.VERSION),
    TOPIC_INDEX: _SidecarFormat("index of a journal", index.TOPIC_INDEX_MAGIC, index.VERSION),
}
_CLIENTS: Final = _SidecarFormat("clients.ack file", publisher_table.MAGIC, publisher_table.VERSION)
_QUEUES: Final = _SidecarFormat("queues.ack file", queue_points.MAGIC, queue_points.VERSION)
_REMOVED: Final = _SidecarFormat("removed.ack file", removal_record.MAGIC, removal_record.VERSION)
_STEPS: Final = _SidecarFormat("steps.ack file", clock_steps.MAGIC, clock_steps.VERSION)
_REPLICATION: Final = _SidecarFormat(
    "replication.ack file", side_files.REPLICATION_MAGIC, side_files.REPLICATION_VERSION
)


def find_foreign_journals(
    instance: str, directory: Path, archive: Path | None
) -> Iterator[ForeignJournalFile]:
    """Find the files that a transaction log must not touch, without changing anything.

    Args:
        instance: name of the instance.
        directory: directory of its journals.
        archive: directory of archived journals, if there is one.

    Raises:
        OSError: a file cannot be read.
    """
    directories = [directory] if archive is None else [directory, archive]
    files = [file for place in directories for file in list_journal_files(place, instance)]
    own_numbers = set[int]()  # numbers of journals with entries
    for number, path in files:
        content: ForeignJournalFile | JournalFileHeader | None = _check_file_type(path)
        if content is None:
            # an index, or another form of the file
            if kind_of(path) in INDEXES or number in own_numbers:
                continue
            content = _check_journal(path, number, instance)
        if isinstance(content, ForeignJournalFile):
            yield content
        elif content is not None:
            own_numbers.add(number)
    for number, path in files:
        if kind_of(path) in INDEXES and _check_file_type(path) is None:
            yield from _check_side_file(
                path, _SIDE_FILES[kind_of(path)], is_ours=number in own_numbers
            )
    for path, side_file in (
        (directory / clients_name(instance), _CLIENTS),
        (directory / queues_name(instance), _QUEUES),
        (directory / removal_record_name(instance), _REMOVED),
        (directory / steps_name(instance), _STEPS),
        (directory / replication_name(instance), _REPLICATION),
    ):
        if not path.exists():
            continue
        foreign_file = _check_file_type(path)
        if foreign_file is not None:
            yield foreign_file
        else:
            yield from _check_side_file(path, side_file, is_ours=bool(own_numbers))


def _check_side_file(
    path: Path, side_file: _SidecarFormat, *, is_ours: bool
) -> Iterator[ForeignJournalFile]:
    """Check a file that can be rebuilt: accepted if it is of this program, however damaged."""
    begin = _read_head(path, len(side_file.magic) + _VERSION_SIZE)
    magic, version = begin[:-_VERSION_SIZE], int.from_bytes(begin[-_VERSION_SIZE:], "little")
    if magic == side_file.magic:
        if version != side_file.version and (cause := _other_version(path, side_file)):
            yield ForeignJournalFile(
                path, f"is of another Amperage: {cause}", ForeignJournalKind.NEWER_VERSION
            )
    elif any(begin) and not is_ours:
        yield ForeignJournalFile(path, f"is no {side_file.name} {_OF_AMPERAGE}")


def _other_version(path: Path, side_file: _SidecarFormat) -> str | None:
    """Return why a file with another version cannot be read; None if it is only damaged."""
    data = inflate(path) if path.suffix == ".gz" else path.read_bytes()
    name, magic, version = side_file
    try:
        side_files.check_side_file(data, magic, version, len(magic) + _VERSION_SIZE, name)
    except JournalVersionError as problem:
        return str(problem)
    except JournalFormatError:
        pass
    return None


def _check_file_type(path: Path) -> ForeignJournalFile | None:
    description = file_type(path)
    return (
        None
        if description is None
        else ForeignJournalFile(path, f"is {description}, where a file is expected")
    )


def file_type(path: Path) -> str | None:
    """Return the type of a path that is no regular file, for operators; None for a regular file."""
    mode = path.stat().st_mode
    return None if stat.S_ISREG(mode) else _TYPES.get(stat.S_IFMT(mode), "not a regular file")


def _check_journal(
    path: Path, number: int, instance: str
) -> ForeignJournalFile | JournalFileHeader | None:
    """Check a journal; return its header, the problem with it, or None if it is blank."""
    page, is_plain = read_page(path), path.suffix != ".gz"
    cause = "it cannot be decompressed" if not is_plain and not page else "its first page is lost"
    try:
        header = unpack_header(page)
        if header is not None:
            return header
    except JournalVersionError as problem:
        return ForeignJournalFile(
            path, f"is a journal of another Amperage: {problem}", ForeignJournalKind.NEWER_VERSION
        )
    except JournalFormatError as problem:
        cause = str(problem)
    header = salvage_header(open_source(path), number, instance)
    if header is not None:
        return header
    if is_plain and (_is_blank(path, page) or _is_torn(page)):
        return None
    if page.startswith(layout.MAGIC):
        description = f"is a journal of Amperage that has no intact entry: {cause}"
        return ForeignJournalFile(path, description, ForeignJournalKind.DAMAGED)
    return ForeignJournalFile(path, f"is no journal {_OF_AMPERAGE}: {cause}")


def _is_blank(path: Path, page: bytes) -> bool:
    """Return whether a file is unused. A small one will be removed, so all of it must be zeros."""
    if any(page):
        return False
    return path.stat().st_size >= MIN_JOURNAL_FILE_SIZE or not any(path.read_bytes())


def _is_torn(page: bytes) -> bool:
    """Return whether a page is a header without its first or its last sector.

    The first sector has all fields but the checksum, which ends the last one. The name of an
    instance is part of a file's name, and too short to reach beyond the first sector.
    """
    first_sector, middle = page[:_SECTOR], page[_SECTOR : _HALF_PAGE - layout.CHECKSUM.size]
    checksum, rest = page[_HALF_PAGE - layout.CHECKSUM.size : _HALF_PAGE], page[_HALF_PAGE:]
    if any(middle) or any(rest):
        return False
    return not any(first_sector) or (first_sector.startswith(layout.MAGIC) and not any(checksum))


def _read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, decompressed and padded with zeros."""
    with path.open("rb") as file:
        begin = file.read(size)
    if path.suffix == ".gz" and begin.startswith(_GZIP):
        begin = inflate(path, size)
    return begin.ljust(size, b"\0")
