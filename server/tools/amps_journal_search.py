"""`amps_journal_search`: finds a message in a journal file by bookmark, txid, topic or data.

Source: AMPS User Guide, amps_journal_search.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.journal.bookmarks import BookmarkError, Named, parse_bookmark
from server.journal.entry import Entry
from server.journal.inspection import JournalReader
from server.journal.layout import encode_text
from server.tools.command import command
from server.tools.journal_text import entry_text, header_text, is_noop, open_reader, write_out

FOUND: Final = 0
NOTHING_FOUND: Final = 1
UNREADABLE: Final = 2

Test = Callable[[Entry], bool]


@command("amps_journal_search", failed=UNREADABLE)
def main(arguments: Sequence[str] | None = None) -> int:
    """Search a journal file.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0 when something was found, 1 when not, 2 for a file or a search that
        cannot be understood.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        test = _test(options)
        reader = open_reader(options.filename)
    except ValueError as problem:
        print(f"amps_journal_search: {problem}", file=sys.stderr)
        return UNREADABLE
    found = [False]
    write_out(_matches(reader, test, options, found))
    return FOUND if found[0] else NOTHING_FOUND


def _matches(
    reader: JournalReader, test: Test, options: argparse.Namespace, found: list[bool]
) -> Iterator[bytes]:
    for slot in reader.slots():
        if slot.entry is not None and not is_noop(slot) and test(slot.entry):
            if not found[0]:
                found[0] = True
                yield header_text(reader)
            yield entry_text(slot, with_data=not options.no_data)


def _test(options: argparse.Namespace) -> Test:
    """What an entry must fulfil: any of the patterns, and all of the restrictions."""
    patterns: list[Test] = []
    if options.pattern is not None:
        patterns.append(_identity(options.pattern))
    if options.data is not None:
        data = encode_text(options.data)
        patterns.append(lambda entry: data in entry.body)
        if "|" in options.data:
            patterns.append(_identity(options.data))
    restrictions: list[Test] = []
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


def _identity(pattern: str) -> Test:
    if pattern.isascii() and pattern.isdigit():
        txid = int(pattern)
        return lambda entry: txid in (entry.txid, entry.source_txid)
    try:
        points = parse_bookmark(pattern).starts
    except BookmarkError:
        points = ()
    named = {(point.client, point.sequence) for point in points if isinstance(point, Named)}
    if not named:
        raise ValueError(f"'{pattern}' is neither a txid nor a bookmark such as 934814|44321|")
    return lambda entry: (entry.client, entry.sequence) in named


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_journal_search", description="Find messages in a journal file."
    )
    parser.add_argument("filename", type=Path, help="a journal file, compressed or not")
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
    version = f"amps_journal_search {VERSION} (AMPS {AMPS_VERSION})"
    parser.add_argument("--version", action="version", version=version)
    return parser


if __name__ == "__main__":
    sys.exit(main())
