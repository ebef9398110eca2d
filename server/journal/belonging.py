"""Which files of a directory are no journals of ours, though they have the names of ours.

Our journals are named as AMPS names its own. Whoever starts an instance where AMPS has run meets
AMPS's journals, and must not lose them; nor must what is left of a journal of ours that has been
damaged throughout be taken for an empty file. So a file is *blank*, and may be written over, only
if its first page is: all zeros.

Nor is a file touched that is of ours, whole, and of a version of its format that this program does
not know: a later program has written it, and would miss what this one makes of it.

A first page that is neither a header nor blank is no reason to refuse a file that has intact
entries: the header is made again from these. Nor is what a power failure may leave of the page that
was written with a file's first commit, sector by sector. Indexes and the table of publishers can be
made again: beside a journal of ours they are taken for ours, however damaged.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from server.journal import clients, clock_steps, index, layout, queue_points, removed, side_files
from server.journal.files import inflate, open_source, read_page, salvage_header
from server.journal.layout import (
    FileHeader,
    FormatError,
    VersionError,
    unpack_header,
)
from server.journal.naming import (
    INDEX,
    INDEXES,
    TOPIC_INDEX,
    clients_name,
    kind_of,
    numbered_files,
    queues_name,
    removed_name,
    replication_name,
    steps_name,
)

SMALLEST: Final = 1 << 20
"""Bytes of a journal file, at least."""

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


class Kind(Enum):
    """What sort of a stranger a file is."""

    FOREIGN = auto()
    """Somebody else's."""
    RUINED = auto()
    """It has been a file of this program."""
    LATER = auto()
    """It is a file of a later version of this program."""


class Stranger(NamedTuple):
    """A file that is not what its name says.

    Attributes:
        path: of the file.
        what: what is wrong with it, for people.
        kind: what sort of a stranger it is.
    """

    path: Path
    what: str
    kind: Kind = Kind.FOREIGN


class _SideFile(NamedTuple):
    """What a kind of file beside the journals is called, begins with, and has as its version."""

    name: str
    magic: bytes
    version: int


_SIDE_FILES: Final = {
    INDEX: _SideFile("index of a journal", index.INDEX_MAGIC, index.VERSION),
    TOPIC_INDEX: _SideFile("index of a journal", index.TOPIC_INDEX_MAGIC, index.VERSION),
}
_CLIENTS: Final = _SideFile("clients.ack file", clients.MAGIC, clients.VERSION)
_QUEUES: Final = _SideFile("queues.ack file", queue_points.MAGIC, queue_points.VERSION)
_REMOVED: Final = _SideFile("removed.ack file", removed.MAGIC, removed.VERSION)
_STEPS: Final = _SideFile("steps.ack file", clock_steps.MAGIC, clock_steps.VERSION)
_REPLICATION: Final = _SideFile(
    "replication.ack file", side_files.REPLICATION_MAGIC, side_files.REPLICATION_VERSION
)


def strangers(instance: str, directory: Path, archive: Path | None) -> Iterator[Stranger]:
    """Find the files that a transaction log must not touch. Nothing is changed.

    Args:
        instance: name of the instance.
        directory: of its journals.
        archive: where others have been moved to, if anywhere.

    Raises:
        OSError: a file cannot be read.
    """
    places = [directory] if archive is None else [directory, archive]
    files = [file for place in places for file in numbered_files(place, instance)]
    ours = set[int]()  # numbers of journals with entries
    for number, path in files:
        found: Stranger | FileHeader | None = _no_file(path)
        if found is None:
            if kind_of(path) in INDEXES or number in ours:  # then it is another form of the file
                continue
            found = _journal(path, number, instance)
        if isinstance(found, Stranger):
            yield found
        elif found is not None:
            ours.add(number)
    for number, path in files:
        if kind_of(path) in INDEXES and _no_file(path) is None:
            yield from _side_file(path, _SIDE_FILES[kind_of(path)], is_ours=number in ours)
    for path, side_file in (
        (directory / clients_name(instance), _CLIENTS),
        (directory / queues_name(instance), _QUEUES),
        (directory / removed_name(instance), _REMOVED),
        (directory / steps_name(instance), _STEPS),
        (directory / replication_name(instance), _REPLICATION),
    ):
        if not path.exists():
            continue
        stranger = _no_file(path)
        if stranger is not None:
            yield stranger
        else:
            yield from _side_file(path, side_file, is_ours=bool(ours))


def _side_file(path: Path, side_file: _SideFile, *, is_ours: bool) -> Iterator[Stranger]:
    """Judge a file that can be made again, however damaged it is, if it is ours."""
    begin = _beginning(path, len(side_file.magic) + _VERSION_SIZE)
    magic, version = begin[:-_VERSION_SIZE], int.from_bytes(begin[-_VERSION_SIZE:], "little")
    if magic == side_file.magic:
        if version != side_file.version and (why := _other_version(path, side_file)):
            yield Stranger(path, f"is of another Amperage: {why}", Kind.LATER)
    elif any(begin) and not is_ours:
        yield Stranger(path, f"is no {side_file.name} {_OF_AMPERAGE}")


def _other_version(path: Path, side_file: _SideFile) -> str | None:
    """Why a file is not read that says it has another version; None if it is only damaged."""
    data = inflate(path) if path.suffix == ".gz" else path.read_bytes()
    name, magic, version = side_file
    try:
        side_files.check_side_file(data, magic, version, len(magic) + _VERSION_SIZE, name)
    except VersionError as problem:
        return str(problem)
    except FormatError:
        pass
    return None


def _no_file(path: Path) -> Stranger | None:
    what = file_type(path)
    return None if what is None else Stranger(path, f"is {what}, where a file is expected")


def file_type(path: Path) -> str | None:
    """What something is that is no ordinary file, for people; None for an ordinary file."""
    mode = path.stat().st_mode
    return None if stat.S_ISREG(mode) else _TYPES.get(stat.S_IFMT(mode), "no ordinary file")


def _journal(path: Path, number: int, instance: str) -> Stranger | FileHeader | None:
    """Judge a journal; None if it is blank."""
    page, is_plain = read_page(path), path.suffix != ".gz"
    why = "it cannot be decompressed" if not is_plain and not page else "its first page is lost"
    try:
        header = unpack_header(page)
        if header is not None:
            return header
    except VersionError as problem:
        return Stranger(path, f"is a journal of another Amperage: {problem}", Kind.LATER)
    except FormatError as problem:
        why = str(problem)
    header = salvage_header(open_source(path), number, instance)
    if header is not None:
        return header
    if is_plain and (_is_blank(path, page) or _is_torn(page)):
        return None
    if page.startswith(layout.MAGIC):
        what = f"is a journal of Amperage that has no intact entry: {why}"
        return Stranger(path, what, Kind.RUINED)
    return Stranger(path, f"is no journal {_OF_AMPERAGE}: {why}")


def _is_blank(path: Path, page: bytes) -> bool:
    """Whether a file has not been used; a small one is removed, so it has to have no content."""
    if any(page):
        return False
    return path.stat().st_size >= SMALLEST or not any(path.read_bytes())


def _is_torn(page: bytes) -> bool:
    """Whether a page is a header of which the first or the last sector has not been written.

    In the first there is everything but the checksum, which ends the last. The name of an instance
    is part of a file's name, and too short to reach beyond the first.
    """
    first, between = page[:_SECTOR], page[_SECTOR : _HALF_PAGE - layout.CHECKSUM.size]
    checksum, rest = page[_HALF_PAGE - layout.CHECKSUM.size : _HALF_PAGE], page[_HALF_PAGE:]
    if any(between) or any(rest):
        return False
    return not any(first) or (first.startswith(layout.MAGIC) and not any(checksum))


def _beginning(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed, with zeros for what is missing."""
    with path.open("rb") as file:
        begin = file.read(size)
    if path.suffix == ".gz" and begin.startswith(_GZIP):
        begin = inflate(path, size)
    return begin.ljust(size, b"\0")
