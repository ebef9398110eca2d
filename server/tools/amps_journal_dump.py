"""`amps_journal_dump`: prints what is in a journal file.

Source: AMPS User Guide, Dump journal File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from config_schema.version import AMPS_VERSION, VERSION
from server.journal.inspection import JournalReader
from server.tools.command import command
from server.tools.journal_text import (
    entry_text,
    footer_text,
    header_text,
    is_noop,
    open_reader,
    write_out,
)


@command("amps_journal_dump")
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump journal files.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            reader = open_reader(path)
        except ValueError as problem:
            print(f"amps_journal_dump: {problem}", file=sys.stderr)
            status = 1
            continue
        write_out(_dump(reader, options))
    return status


def _dump(reader: JournalReader, options: argparse.Namespace) -> Iterator[bytes]:
    yield header_text(reader, local=options.localtime)
    start, stop = options.limit
    for slot in reader.slots(start, stop):
        if options.include_noops or not is_noop(slot):
            yield entry_text(slot, local=options.localtime, with_data=not options.no_data)
    yield footer_text(reader)
    if options.extents:
        yield from _extents(reader)


def _extents(reader: JournalReader) -> Iterator[bytes]:
    """Which entries came from here, and which from elsewhere: lowest and highest txid of each."""
    extents: dict[int, list[int]] = {}
    for slot in reader.slots():
        entry = slot.entry
        if entry is not None and not is_noop(slot):
            txid = entry.source_txid if entry.source else entry.txid
            known = extents.setdefault(entry.source, [txid, txid, 0])
            known[:] = min(known[0], txid), max(known[1], txid), known[2] + 1
    for source, (first, last, count) in sorted(extents.items()):
        name = f"Source {source}" if source else "Local"
        yield f"{name:<16}: [{first}:{last}] {count} entries\n".encode()


def _limit(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        return (int(first), int(last) + 1) if colon else (0, int(first))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a number of entries nor a range N:M of entry numbers"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_journal_dump", description="Print what is in journal files."
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
    parser.add_argument(
        "--version", action="version", version=f"amps_journal_dump {VERSION} (AMPS {AMPS_VERSION})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
