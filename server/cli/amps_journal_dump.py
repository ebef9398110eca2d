"""`amps_journal_dump`: prints the contents of a journal file.

Source: AMPS User Guide, Dump journal File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_printer import JournalPrinter
from server.cli.journal_text import is_noop, open_reader, write_out
from server.storage.journal.inspection import JournalReader
from server.util.json_lines import json_line

NAME: Final = "amps_journal_dump"
PROBLEM: Final = 1


@command(NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump journal files.

    Returns:
        The exit status: 0, or 1 if a file cannot be read, or not all of it.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            reader = open_reader(path)
        except ValueError as problem:
            say(f"{NAME}: {problem}")
            status = PROBLEM
            continue
        printer = JournalPrinter(
            reader,
            as_json=options.json,
            local=options.localtime,
            with_data=not options.no_data,
        )
        write_out(_dump(reader, printer, options))
        if printer.report_damage(NAME):
            status = PROBLEM
    return status


def _dump(
    reader: JournalReader, printer: JournalPrinter, options: argparse.Namespace
) -> Iterator[bytes]:
    yield printer.render_header()
    start, stop = options.limit
    for slot in reader.slots(start, stop):
        printer.count_damage(slot)
        if options.include_noops or not is_noop(slot):
            yield printer.render_entry(slot)
    yield printer.render_footer()
    if options.extents:
        for extent in _extents(reader):
            yield extent.as_json(reader.path) if options.json else extent.as_text()


class _SourceRange(NamedTuple):
    """The entries from one source: their lowest and highest txid, and their number."""

    source: int
    first: int
    last: int
    entries: int

    def as_text(self) -> bytes:
        name = f"Source {self.source}" if self.source else "Local"
        return f"{name:<16}: [{self.first}:{self.last}] {self.entries} entries\n".encode()

    def as_json(self, path: Path) -> bytes:
        return json_line(
            {
                "record": "extent",
                "file": str(path),
                "source": str(self.source) if self.source else None,
                "first txid": str(self.first),
                "last txid": str(self.last),
                "entries": self.entries,
            }
        )


def _extents(reader: JournalReader) -> Iterator[_SourceRange]:
    """Yield the extents of the instance's own entries and of those from other sources."""
    extents: dict[int, list[int]] = {}
    for slot in reader.slots():
        entry = slot.entry
        if entry is not None and not is_noop(slot):
            txid = entry.source_txid if entry.source else entry.txid
            extent = extents.setdefault(entry.source, [txid, txid, 0])
            extent[:] = min(extent[0], txid), max(extent[1], txid), extent[2] + 1
    for source, (first, last, count) in sorted(extents.items()):
        yield _SourceRange(source, first, last, count)


def _limit(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    numbers = [int(part) for part in (first, last) if part.isascii() and part.isdigit()]
    if len(numbers) != 1 + len(colon) or numbers != sorted(numbers):
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a number of entries nor a range N:M of entry numbers"
        )
    return (numbers[0], numbers[1] + 1) if colon else (0, numbers[0])


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Print what is in journal files.",
        as_json="print JSON: an object for each file, each entry, and the end of each file",
    )
    parser.add_argument("filename", type=Path, nargs="+", help="a journal file, compressed or not")
    parser.add_argument(
        "-l",
        dest="limit",
        metavar="LIMIT",
        type=_limit,
        default=(0, None),
        help="only entries N to M of N:M, or the first M",
    )
    parser.add_argument("--localtime", action="store_true", help="show times in local time")
    parser.add_argument("--extents", action="store_true", help="add which entries came from where")
    parser.add_argument("--no-data", action="store_true", help="leave the messages' bodies out")
    parser.add_argument("--include-noops", action="store_true", help="show the log's own entries")
    return parser


if __name__ == "__main__":
    sys.exit(main())
