"""`amps_journal_search`: finds a message in journal files by bookmark, txid, topic or data.

Source: AMPS User Guide, amps_journal_search.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_printer import JournalPrinter
from server.cli.journal_text import is_noop, open_reader, write_out
from server.cli.read_errors import reason
from server.storage.journal.format.entry import JournalEntry
from server.storage.journal.format.file_names import COMPRESSED, JOURNAL
from server.storage.journal.format.layout import encode_text
from server.storage.journal.inspection import JournalReader
from server.storage.journal.read.bookmarks import BookmarkError, EntryName, parse_bookmark

NAME: Final = "amps_journal_search"
FOUND: Final = 0
NOTHING_FOUND: Final = 1
UNREADABLE: Final = 2

EntryPredicate = Callable[[JournalEntry], bool]


@command(NAME, failed=UNREADABLE)
def main(arguments: Sequence[str] | None = None) -> int:
    """Search journal files.

    Returns:
        The exit status: 0 if a message was found, 1 if none was, 2 if the search is invalid or a
        file cannot be read completely.
    """
    options = _parser().parse_intermixed_args(arguments)
    try:
        test = _test(options)
        paths = _journals(options.filename)
    except ValueError as problem:
        say(f"{NAME}: {problem}")
        return UNREADABLE
    has_match, damaged = False, False
    for path in paths:
        try:
            reader = open_reader(path)
        except ValueError as problem:
            say(f"{NAME}: {problem}")
            damaged = True
            continue
        printer = JournalPrinter(reader, as_json=options.json, with_data=not options.no_data)
        for text in _matches(reader, test, printer):
            has_match = True
            write_out([text])
        damaged |= printer.report_damage(NAME)
    if damaged:
        return UNREADABLE
    return FOUND if has_match else NOTHING_FOUND


def _journals(path: Path) -> list[Path]:
    """Return the file itself, or the journals of a directory, in order.

    Raises:
        ValueError: it is a directory without any.
    """
    if not path.is_dir():
        return [path]
    try:
        names = sorted(os.listdir(path))
    except OSError as problem:
        raise ValueError(reason(path, problem)) from problem
    paths = [path / name for name in names if name.endswith((JOURNAL, COMPRESSED))]
    if not paths:
        raise ValueError(f"{path}: there are no journals in this directory")
    return paths


def _matches(
    reader: JournalReader, test: EntryPredicate, printer: JournalPrinter
) -> Iterator[bytes]:
    header = printer.render_header()
    for slot in reader.slots():
        printer.count_damage(slot)
        if slot.entry is not None and not is_noop(slot) and test(slot.entry):
            yield header + printer.render_entry(slot)
            header = b""


def _test(options: argparse.Namespace) -> EntryPredicate:
    """Return the test of an entry: it matches any of the patterns and all of the restrictions."""
    patterns: list[EntryPredicate] = []
    if options.pattern is not None:
        patterns.append(_identity(options.pattern))
    if options.data is not None:
        data = encode_text(options.data)
        patterns.append(lambda entry: data in entry.body)
        if "|" in options.data:
            patterns.append(_identity(options.data))
    restrictions: list[EntryPredicate] = []
    if options.topic is not None:
        restrictions.append(lambda entry: options.topic in entry.topic.name)
    if options.client:
        clients = set(options.client)
        restrictions.append(lambda entry: bool(clients & {entry.client, entry.source_txid}))
    if not patterns and not restrictions:
        raise ValueError("nothing to search for: give a bookmark, a txid, -d, -topic or --client")
    return lambda entry: (
        (not patterns or any(test(entry) for test in patterns))
        and all(test(entry) for test in restrictions)
    )


def _identity(pattern: str) -> EntryPredicate:
    if pattern.isascii() and pattern.isdigit():
        txid = int(pattern)
        return lambda entry: txid in (entry.txid, entry.source_txid)
    try:
        points = parse_bookmark(pattern).starts
    except BookmarkError:
        points = ()
    named = {(point.client, point.sequence) for point in points if isinstance(point, EntryName)}
    if not named:
        raise ValueError(f"'{pattern}' is neither a txid nor a bookmark such as 934814|44321|")
    return lambda entry: (entry.client, entry.sequence) in named


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Find messages in journal files.",
        as_json="print JSON: an object for each file in which there are any, and each entry",
    )
    parser.add_argument(
        "filename", type=Path, help="a journal file, compressed or not, or a directory of them"
    )
    parser.add_argument("pattern", nargs="?", help="the bookmark or the txid to find")
    parser.add_argument("-d", "--data", help="find messages that contain this")
    parser.add_argument("-topic", "--topic", help="find messages on topics that contain this")
    parser.add_argument("--no-data", action="store_true", help="leave the messages' bodies out")
    parser.add_argument(
        "--client",
        type=int,
        action="append",
        metavar="CLIENT_HASH",
        help="find messages of this publisher; may be repeated",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
