"""`amps_sow_dump`: prints the records of a SOW file, of a stopped or a running instance.

Source: AMPS User Guide, Dump SOW File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from server.app.command_line import CommandLineParser, count, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.cli.record_archive import expect_replaceable, new_archive
from server.cli.sow_contents import (
    FileRecord,
    SowFileContents,
    file_offset,
    read_contents,
    records_of,
)
from server.storage.sow.keys.key_source import key_hash
from server.storage.sow.records import NANOSECONDS
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.slab_file import DamagedFileError, OtherVersionError, SlabFile
from server.util.json_lines import json_line
from server.util.safe_open import open_regular

NAME: Final = "amps_sow_dump"
GOOD: Final = 0
DAMAGED: Final = 1
UNREADABLE: Final = 2

_CHART_SIZES: Final = range(128, 1920 + 1, 128)
_MEGABYTE: Final = 1 << 20


@command(NAME, failed=UNREADABLE)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print SOW files as the command line requests.

    Returns:
        The exit status: 0 for good files, 1 if one is damaged, 2 if one cannot be read at all.
    """
    options = _parser().parse_args(arguments)
    paths = [Path(name) for name in options.filename]
    if options.archive is not None:
        return _archive(paths, Path(options.archive), options.limit)
    return max(_dump(path, options) for path in paths)


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Print the records of SOW files, and how they are stored.",
        as_json="print JSON: an object for each record",
    )
    parser.add_argument("filename", type=file_name, nargs="+", help="the SOW file")
    parser.add_argument("-n", dest="limit", type=count, metavar="LIMIT", help="print at most LIMIT")
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
        type=file_name,
        help="write the records to a zip file, one to a member, as spark publish -file takes them",
    )
    return parser


def _ascii_value(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 256:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no ASCII value: expected a number from 0 to 255")


def _open(path: Path) -> SlabFile | None:
    """Open a SOW file; report an error and return None if it cannot be read."""
    try:
        open_regular(path).close()
        return SlabFile(path, writable=False)
    except OSError as error:
        say(f"{NAME}: {path}: {error.strerror}")
    except (DamagedFileError, OtherVersionError) as error:
        say(f"{NAME}: {error}")
    return None


def _archive(paths: Sequence[Path], target: Path, limit: int | None) -> int:
    """Write the records of all files to an archive, unless one of them cannot be read at all."""
    with ExitStack() as opened:
        files = [file for path in paths if (file := _open(path))]
        for file in files:
            opened.callback(file.close)
        if len(files) < len(paths):
            return UNREADABLE
        try:
            expect_replaceable(target, paths)
            with new_archive(target) as archive:
                return max(_archive_bodies(file, archive, limit) for file in files)
        except OSError as error:
            say(f"{NAME}: {target}: {error.strerror}")
            return UNREADABLE


def _dump(path: Path, options: argparse.Namespace) -> int:
    file = _open(path)
    if file is None:
        return UNREADABLE
    with closing(file):
        contents = read_contents(file)
        records = records_of(file, contents)
        if options.sizing_chart:
            _print_chart(
                path, (len(record.record.body) for record in records), as_json=options.json
            )
        elif options.verbose:
            _print_verbose(file, contents, list(records), options)
        elif options.json:
            present = (record for record in records if not record.is_past_state)
            write_out(_object(path, record) for record in islice(present, options.limit))
        else:
            _print_bodies(records, bytes([options.delimiter]), options.limit)
    return _report_damage(path, contents)


def _report_damage(path: Path, contents: SowFileContents) -> int:
    """Report the unreadable parts of a file, and return the resulting exit status."""
    if contents.damage is not None:
        say(f"{NAME}: {contents.damage}; all that can be read is printed")
    contents.skipped.report(NAME, path)
    contents.changed_records.report(NAME, path)
    return GOOD if contents.damage is None else DAMAGED


def _print_bodies(records: Iterable[FileRecord], delimiter: bytes, limit: int | None) -> None:
    for body in _bodies(records, limit):
        sys.stdout.buffer.write(body + delimiter)


def _archive_bodies(file: SlabFile, archive: ZipFile, limit: int | None) -> int:
    """Add the bodies of a file as members of the archive, named by consecutive numbers.

    Source: AMPS User Guide, spark publish (file).

    Returns:
        The exit status for the file.
    """
    contents = read_contents(file)
    first = len(archive.filelist) + 1
    for number, body in enumerate(_bodies(records_of(file, contents), limit), first):
        archive.writestr(str(number), body)
    return _report_damage(file.path, contents)


def _bodies(records: Iterable[FileRecord], limit: int | None) -> Iterator[bytes]:
    """Yield the bodies of current records, without past states."""
    return islice((record.record.body for record in records if not record.is_past_state), limit)


def _print_verbose(
    file: SlabFile,
    contents: SowFileContents,
    records: Sequence[FileRecord],
    options: argparse.Namespace,
) -> None:
    shown = records[: options.limit]
    summary = dict(_summarize(file, records))
    slabs = [dict(_slab(file, contents, records, slab)) for slab in range(len(file.slabs))]
    if options.json:
        write_out(_object(file.path, record) for record in shown)
        start = {"record": "file", "file": str(file.path)}
        counts = {name.lower(): value for name, value in summary.items()}
        average = {"average record size": float(str(summary["Average record size"]))}
        write_out([json_line(counts | start | average)])
        write_out(json_line(start | {"record": "slab"} | slab) for slab in slabs)
        return
    for record in shown:
        fields = (f"    {name:<17} = {value}\n" for name, value in _describe(record))
        text = "".join(fields).encode("utf-8", "surrogateescape")
        sys.stdout.buffer.write(text + b"    data              = [" + record.record.body + b"]\n\n")
    _print_table(summary)
    print("\nSlab Detail")
    for slab in slabs:
        print()
        _print_table(slab)


def _summarize(file: SlabFile, records: Sequence[FileRecord]) -> Iterator[tuple[str, object]]:
    sizes = [len(record.record.body) for record in records]
    yield "File", str(file.path)
    yield "Version", form.FORMAT_NAME
    yield "Valid Keys", len(records)
    yield "Past States", sum(record.is_past_state for record in records)
    yield "Maximum record size", max(sizes, default=0)
    yield "Average record size", f"{sum(sizes) / max(1, len(sizes)):.2f}"
    yield "Slab Count", len(file.slabs)


def _slab(
    file: SlabFile, contents: SowFileContents, records: Sequence[FileRecord], slab: int
) -> Iterator[tuple[str, object]]:
    in_slab = [record for record in records if record.location // file.slab_size == slab]
    stored = sum(record.allocated_bytes for record in in_slab)
    yield "size", file.slab_size
    yield "file offset", file_offset(slab * file.slab_size)
    yield "valid count", len(in_slab)
    yield "invalid count", contents.entries.get(slab, 0) - len(in_slab)
    yield "stored bytes", stored
    yield "data bytes", sum(len(record.record.body) for record in in_slab)
    yield "deleted bytes", file.slab_size - stored


def _object(path: Path, stored: FileRecord) -> bytes:
    record = stored.record
    fields = dict(_describe(stored))
    texts = {
        "key": str(fields["key"]),
        "local txid": str(record.sequence),
        "string key": record.key,
        "topic": record.topic or None,
        "bookmark": record.bookmark,
        "correlation id": record.correlation_id,
        "data": record.body,
    }
    return json_line({"record": "record", "file": str(path)} | fields | texts)


def _describe(stored: FileRecord) -> Iterator[tuple[str, object]]:
    record = stored.record
    number = key_hash(record.key)
    timestamp = datetime.fromtimestamp(record.timestamp // NANOSECONDS, UTC)
    micros = record.timestamp % NANOSECONDS // 1000
    yield "key", number
    yield "crc", stored.checksum
    yield "flags", "past" if stored.is_past_state else ""
    yield "slab offset", file_offset(stored.location)
    yield "allocated", stored.allocated_bytes
    yield "data size", len(record.body)
    yield "expiration", record.expires // NANOSECONDS
    yield "iso8601 timestamp", f"{timestamp:%Y%m%dT%H%M%S}.{micros:06}Z"
    yield "local txid", record.sequence
    yield "string key", f"[{'' if str(number) == record.key else record.key}]"
    yield "topic", f"[{record.topic}]"
    yield "bookmark", f"[{record.bookmark}]"
    yield "correlation id", f"[{record.correlation_id}]"


def _print_table(rows: Mapping[str, object]) -> None:
    sys.stdout.flush()
    for name, value in rows.items():
        print(f"{name:<20}: {value!s:>20}")


def _print_chart(path: Path, sizes: Iterable[int], *, as_json: bool) -> None:
    """Print the average space of a record in cells of fixed sizes, and how many need several."""
    all_sizes = list(sizes)
    rooms = {
        cell: sum(-(-max(1, size) // cell) * cell for size in all_sizes) / max(1, len(all_sizes))
        for cell in _CHART_SIZES
    }
    best = min(rooms.values())
    if as_json:
        write_out(
            json_line(
                {
                    "record": "cell",
                    "file": str(path),
                    "record size": cell,
                    "store": room,
                    "efficiency": 100 * best / room if room else 100.0,
                    "multirecords": sum(size > cell for size in all_sizes),
                }
            )
            for cell, room in rooms.items()
        )
        return
    line = "=" * 61
    print(f"{line}\n{'Record Size':>14}{'Store':>16}{'Efficiency':>15}{'Multirecords':>15}\n{line}")
    for cell, room in rooms.items():
        efficiency = 100 * best / room if room else 100.0
        several = sum(size > cell for size in all_sizes)
        print(f"{cell:>14}{_size(room):>16}{efficiency:>14.2f}%{several:>15}")


def _size(count: float) -> str:
    if count < 1024:
        return f"{count:.0f} B"
    if count < _MEGABYTE:
        return f"{count / 1024:.2f} KB"
    return f"{count / _MEGABYTE:.2f} MB"


if __name__ == "__main__":
    sys.exit(main())
