"""`amps_sow_dump`: prints the records of a SOW file, of a stopped or a running instance.

Source: AMPS User Guide, Dump SOW File.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from errno import EISDIR
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from config_schema.version import AMPS_VERSION, VERSION
from server.sow import slab_format as form
from server.sow.keys import key_hash
from server.sow.records import NANOSECONDS, Record
from server.sow.slab_file import DamagedFileError, SlabFile
from server.sow.slab_format import Kind
from server.sow.slab_scan import scan
from server.tools.command import command

GOOD: Final = 0
DAMAGED: Final = 1
UNREADABLE: Final = 2

_ATTEMPTS: Final = 3
"""A file may change while it is read: damage counts if it is found every time."""

_CHART_SIZES: Final = range(128, 1920 + 1, 128)
_MEGABYTE: Final = 1 << 20


class Found(NamedTuple):
    """A record of the file.

    Attributes:
        record: the record, with an empty topic where the file's own is meant.
        location: the slab's index times the slab size, plus the position in the slab.
        checksum: of the entry.
        room: bytes that the entry takes.
        past: it is a past state.
    """

    record: Record
    location: int
    checksum: int
    room: int
    past: bool


@dataclass(slots=True)
class Contents:
    """What a file holds.

    Attributes:
        records: identity -> where its entry is and what it is.
        entries: slab index -> how many entries the slab has.
        damage: what is wrong with the file, None if it is good.
    """

    records: dict[tuple[object, ...], int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    damage: str | None = None


@command("amps_sow_dump", failed=UNREADABLE)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the command line asks for.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0 for good files, 1 if one is damaged, 2 if one cannot be read at all.
    """
    options = _parser().parse_args(arguments)
    if options.archive is None:
        return max(_dump(Path(name), options) for name in options.filename)
    try:
        with ZipFile(options.archive, "w", ZIP_DEFLATED) as archive:
            return max(_dump(Path(name), options, archive) for name in options.filename)
    except OSError as error:
        print(f"amps_sow_dump: {options.archive}: {error.strerror}", file=sys.stderr)
        return UNREADABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_sow_dump", description="Print the records of SOW files, and how they are stored."
    )
    parser.add_argument("filename", nargs="+", help="the SOW file")
    parser.add_argument("-n", dest="limit", type=int, metavar="LIMIT", help="print at most LIMIT")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print all that is stored, and a summary"
    )
    parser.add_argument(
        "--sizing-chart",
        action="store_true",
        help="compare the room that records would take in cells of fixed sizes",
    )
    parser.add_argument(
        "-d",
        dest="delimiter",
        type=_ascii_value,
        default=10,
        metavar="DELIMITER",
        help="the ASCII value of the character after each record (10, a new line)",
    )
    parser.add_argument(
        "-z",
        dest="archive",
        metavar="ARCHIVE",
        help="write the records to a zip file, one to a member, as spark publish -file takes them",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"amps_sow_dump {VERSION} (AMPS {AMPS_VERSION})",
    )
    return parser


def _ascii_value(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 256:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no ASCII value: expected a number from 0 to 255")


def _dump(path: Path, options: argparse.Namespace, archive: ZipFile | None = None) -> int:
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        file = SlabFile(path, writable=False)
    except OSError as error:
        print(f"amps_sow_dump: {path}: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    except DamagedFileError as error:
        print(f"amps_sow_dump: {error}", file=sys.stderr)
        return UNREADABLE
    try:
        contents = _read(file)
        found = (_found(file, location) for location in contents.records.values())
        if archive is not None:
            _archive_bodies(found, archive, options.limit)
        elif options.sizing_chart:
            _print_chart(len(each.record.body) for each in found)
        elif options.verbose:
            _print_verbose(file, contents, list(found), options.limit)
        else:
            _print_bodies(found, bytes([options.delimiter]), options.limit)
    finally:
        file.close()
    if contents.damage is None:
        return GOOD
    print(f"amps_sow_dump: {contents.damage}; the records before that are printed", file=sys.stderr)
    return DAMAGED


# ---- reading


def _read(file: SlabFile) -> Contents:
    for _ in range(_ATTEMPTS):
        contents = Contents()
        try:
            scan(file, lambda location, data: _take(file, contents, location, data))  # noqa: B023 - called at once
        except DamagedFileError as error:
            contents.damage = str(error)
        else:
            break
    return contents


def _take(file: SlabFile, contents: Contents, location: int, data: bytes) -> None:
    """Apply an entry of the log."""
    slab = location // file.slab_size
    contents.entries[slab] = contents.entries.get(slab, 0) + 1
    kind = form.entry_kind(data)
    if kind in (Kind.PAST, Kind.PAST_DELETED, Kind.DROPPED):
        identity: tuple[object, ...] = (form.entry_number(data),)
    else:
        record = form.decode_record(data, "")
        identity = (record.topic, record.key)
    if kind in (Kind.DELETED, Kind.DROPPED):
        contents.records.pop(identity, None)
    else:
        contents.records[identity] = location


def _found(file: SlabFile, location: int) -> Found:
    data = file.read(location)
    return Found(
        form.decode_record(data, ""),
        location,
        int.from_bytes(data[:4], "little"),
        form.padded(len(data)),
        form.entry_kind(data) != Kind.RECORD,
    )


# ---- printing


def _print_bodies(found: Iterable[Found], delimiter: bytes, limit: int | None) -> None:
    for body in _bodies(found, limit):
        sys.stdout.buffer.write(body + delimiter)


def _archive_bodies(found: Iterable[Found], archive: ZipFile, limit: int | None) -> None:
    """Add them as members that are named by consecutive numbers.

    Source: AMPS User Guide, spark publish (file).
    """
    first = len(archive.filelist) + 1
    for number, body in enumerate(_bodies(found, limit), first):
        archive.writestr(str(number), body)


def _bodies(found: Iterable[Found], limit: int | None) -> Iterator[bytes]:
    """Of the records that there are now."""
    return islice((each.record.body for each in found if not each.past), limit)


def _print_verbose(
    file: SlabFile, contents: Contents, found: Sequence[Found], limit: int | None
) -> None:
    for each in found[:limit]:
        fields = (f"    {name:<17} = {value}\n" for name, value in _describe(each))
        record = "".join(fields).encode("utf-8", "surrogateescape")
        sys.stdout.buffer.write(record + b"    data              = [" + each.record.body + b"]\n\n")
    sizes = [len(each.record.body) for each in found]
    _print_table(
        (
            ("File", file.path),
            ("Version", form.FORMAT_NAME),
            ("Valid Keys", len(found)),
            ("Past States", sum(each.past for each in found)),
            ("Maximum record size", max(sizes, default=0)),
            ("Average record size", f"{sum(sizes) / max(1, len(sizes)):.2f}"),
            ("Slab Count", len(file.slabs)),
        )
    )
    print("\nSlab Detail")
    for slab in range(len(file.slabs)):
        here = [each for each in found if each.location // file.slab_size == slab]
        stored = sum(each.room for each in here)
        print()
        _print_table(
            (
                ("size", file.slab_size),
                ("file offset", _offset(slab * file.slab_size)),
                ("valid count", len(here)),
                ("invalid count", contents.entries.get(slab, 0) - len(here)),
                ("stored bytes", stored),
                ("data bytes", sum(len(each.record.body) for each in here)),
                ("deleted bytes", file.slab_size - stored),
            )
        )


def _describe(found: Found) -> Iterator[tuple[str, object]]:
    record = found.record
    number = key_hash(record.key)
    moment = datetime.fromtimestamp(record.timestamp // NANOSECONDS, UTC)
    micros = record.timestamp % NANOSECONDS // 1000
    yield "key", number
    yield "crc", found.checksum
    yield "flags", "past" if found.past else ""
    yield "slab offset", _offset(found.location)
    yield "allocated", found.room
    yield "data size", len(record.body)
    yield "expiration", record.expires // NANOSECONDS
    yield "iso8601 timestamp", f"{moment:%Y%m%dT%H%M%S}.{micros:06}Z"
    yield "local txid", record.sequence
    yield "string key", f"[{'' if str(number) == record.key else record.key}]"
    yield "topic", f"[{record.topic}]"
    yield "bookmark", f"[{record.bookmark}]"
    yield "correlation id", f"[{record.correlation_id}]"


def _offset(location: int) -> int:
    """Where in the file a location is."""
    return form.PAGE + location


def _print_table(rows: Iterable[tuple[str, object]]) -> None:
    sys.stdout.flush()
    for name, value in rows:
        print(f"{name:<20}: {value!s:>20}")


def _print_chart(sizes: Iterable[int]) -> None:
    """The average room of a record in cells of fixed sizes, and how many need more than one."""
    known = list(sizes)
    rooms = {
        cell: sum(-(-max(1, size) // cell) * cell for size in known) / max(1, len(known))
        for cell in _CHART_SIZES
    }
    best = min(rooms.values())
    line = "=" * 61
    print(f"{line}\n{'Record Size':>14}{'Store':>16}{'Efficiency':>15}{'Multirecords':>15}\n{line}")
    for cell, room in rooms.items():
        efficiency = 100 * best / room if room else 100.0
        several = sum(size > cell for size in known)
        print(f"{cell:>14}{_size(room):>16}{efficiency:>14.2f}%{several:>15}")


def _size(count: float) -> str:
    if count < 1024:
        return f"{count:.0f} B"
    if count < _MEGABYTE:
        return f"{count / 1024:.2f} KB"
    return f"{count / _MEGABYTE:.2f} MB"


if __name__ == "__main__":
    sys.exit(main())
