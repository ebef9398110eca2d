"""`amps-grep`: finds entries in server logs and in journals.

A log entry may have several lines, and is found and printed as a whole. In journals the text that
`amps_journal_dump` prints is searched, and the messages' bodies. Both may be compressed. The name
of a directory, such as an archive's, selects all logs and journals in it.

Source: AMPS User Guide, amps-grep; Using amps-grep to Find Information in Logs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, cast

from amperage.wire.bookmarks import client_hash
from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.grep_files import FileKind, files_below, kind_of_file
from server.cli.journal_printer import JournalPrinter
from server.cli.journal_text import entry_text, is_noop, open_reader, write_out
from server.cli.log_entries import LogLines, log_entries, parts_of
from server.storage.journal.format.layout import encode_text
from server.storage.journal.inspection import EntrySlot
from server.storage.journal.publisher_table import publisher_part, server_made_identity
from server.util.json_lines import json_line

NAME: Final = "amps-grep"
FOUND: Final = 0
NOTHING_FOUND: Final = 1
PROBLEM: Final = 2

_STANDARD_INPUT: Final = "(standard input)"

LinePredicate = Callable[[bytes], bool]


@dataclass(slots=True)
class _Search:
    """The options of a search and its outcome."""

    options: argparse.Namespace
    matches: LinePredicate
    with_names: bool
    has_match: bool = False
    has_problem: bool = False

    def report_problem(self, text: str) -> None:
        """Report a problem on standard error, and remember that there was one."""
        self.has_problem = True
        say(f"{NAME}: {text}")


@command(NAME, failed=PROBLEM)
def main(arguments: Sequence[str] | None = None) -> int:
    """Search logs and journals.

    Returns:
        The exit status: 0 if an entry was found, 1 if none was, 2 if a file cannot be read
        completely.
    """
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    files: list[str] = options.files
    if not (options.terms or options.term_files or options.regexes or options.clients):
        if not files:
            parser.error("nothing to search for: give a search term")
        options.terms, files = [files[0]], files[1:]
    try:
        matches = _matcher(options)
    except re.error as problem:
        say(f"{NAME}: '{problem.pattern!s}' is not a regular expression: {problem}")
        return PROBLEM
    except OSError as problem:
        say(f"{NAME}: {problem.filename}: {problem.strerror}")
        return PROBLEM
    with_names = options.with_filename
    if with_names is None:
        with_names = len(files) > 1 or any(map(os.path.isdir, files))
    search = _Search(options, matches, with_names)
    write_out(_search_all(search, files))
    if search.has_problem:
        return PROBLEM
    return FOUND if search.has_match else NOTHING_FOUND


def _search_all(search: _Search, files: Sequence[str]) -> Iterator[bytes]:
    if not files:
        yield from _search_log(search, _STANDARD_INPUT, cast("BufferedReader", sys.stdin.buffer))
    for name in files:
        path = Path(name)
        if path.is_dir():
            yield from _search_directory(search, path)
        else:
            yield from _search_file(search, path, _kind(search, path))


def _search_directory(search: _Search, directory: Path) -> Iterator[bytes]:
    others = []
    for path in files_below(directory, lambda error: search.report_problem(_error_text(error))):
        kind = _kind(search, path)
        if kind is FileKind.OTHER:
            others.append(path)
        else:
            yield from _search_file(search, path, kind)
    if others:
        noun = "file that is" if len(others) == 1 else "files that are"
        say(
            f"{NAME}: {directory}: {len(others)} {noun} neither log nor journal passed over,"
            f" such as {others[0]}"
        )


def _search_file(search: _Search, path: Path, kind: FileKind | None) -> Iterator[bytes]:
    try:
        match kind:
            case FileKind.JOURNAL:
                yield from _search_journal(search, path)
            case FileKind.LOG:
                with path.open("rb") as file:
                    yield from _search_log(search, str(path), file)
            case FileKind.OTHER:
                search.report_problem(
                    f"{path}: neither log nor journal; amps_file tells what it is"
                )
            case None:
                pass
    except OSError as problem:
        search.report_problem(_error_text(problem, path))
    except ValueError as problem:
        search.report_problem(str(problem))


def _kind(search: _Search, path: Path) -> FileKind | None:
    """Return the kind of a file; report an error and return None if it cannot be read."""
    try:
        return kind_of_file(path)
    except OSError as problem:
        search.report_problem(_error_text(problem, path))
        return None


def _error_text(problem: OSError, path: Path | None = None) -> str:
    return f"{path or problem.filename}: {problem.strerror or problem}"


def _search_journal(search: _Search, path: Path) -> Iterator[bytes]:
    reader = open_reader(path)
    options = search.options
    printer = JournalPrinter(reader, as_json=options.json, with_data=not options.no_data)
    instance = "" if reader.header is None else reader.header.instance
    hashes = _hashes(options.clients)
    publisher_parts = {
        publisher_part(server_made_identity(hash_value, instance)) for hash_value in hashes
    }
    prefix = b"" if options.json or not search.with_names else encode_text(f"{path}:\n")
    yield printer.render_header()
    for slot in reader.slots():
        printer.count_damage(slot)
        if is_noop(slot) and not options.include_noops:
            continue
        if hashes and not _is_from_clients(slot, hashes, publisher_parts):
            continue
        if search.matches(entry_text(slot)) == options.invert_match:
            continue
        search.has_match = True
        yield prefix + printer.render_entry(slot)
    search.has_problem |= printer.report_damage(NAME)


def _is_from_clients(slot: EntrySlot, hashes: set[int], parts: set[int]) -> bool:
    entry = slot.entry
    return entry is not None and (entry.client in hashes or publisher_part(entry.client) in parts)


def _hashes(clients: Iterable[str]) -> set[int]:
    """Return the client hashes of clients given by name or by hash."""
    return {
        int(client) if client.isascii() and client.isdigit() else client_hash(client)
        for client in clients
    }


def _search_log(search: _Search, name: str, file: BufferedReader) -> Iterator[bytes]:
    options = search.options
    clients = [encode_text(client) for client in options.clients]
    lines = LogLines(file)
    for number, entry in log_entries(lines):
        if clients and not any(client in entry for client in clients):
            continue
        if search.matches(entry) == options.invert_match:
            continue
        search.has_match = True
        if options.json:
            position = {"record": "log", "file": name, "line": number}
            yield json_line(position | parts_of(entry))
            continue
        prefix = encode_text(f"{name}:") if search.with_names else b""
        if options.line_number:
            prefix += f"{number}:".encode()
        yield prefix + (entry if entry.endswith(b"\n") else entry + b"\n")
    if lines.damage is not None:
        search.report_problem(f"{name}: {lines.damage}")


def _matcher(options: argparse.Namespace) -> LinePredicate:
    """Return the test of a text: it contains any of the terms.

    Without any terms every entry is printed, also with --invert-match.
    """
    terms = [encode_text(pattern) for pattern in options.terms]
    for path in options.term_files:
        terms += [line for line in Path(path).read_bytes().splitlines() if line]
    if not (terms or options.term_files or options.regexes):
        return lambda _: not options.invert_match
    flags = re.IGNORECASE if options.ignore_case else 0
    patterns = [encode_text(pattern) for pattern in options.regexes]  # each with its own flags
    if terms:
        patterns.append(b"|".join(map(re.escape, terms)))
    searches = [re.compile(pattern, flags).search for pattern in patterns]
    return lambda text: any(search(text) for search in searches)


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Find entries in server logs and in journals.",
        usage="amps-grep [options] TERM [files]\n       amps-grep [options] -e TERM [files]",
        as_json="print JSON: an object for each journal, and each entry that is found",
        help_names=("--help",),
    )
    add = parser.add_argument
    add(
        "files",
        nargs="*",
        type=file_name,
        help="logs and journals, compressed or not, and directories of them; standard input if"
        " there are none",
    )
    add(
        "-e",
        "--search_term",
        dest="terms",
        metavar="TERM",
        action="append",
        default=[],
        help="find this text; may be repeated",
    )
    add(
        "-f",
        "--file",
        dest="term_files",
        metavar="LITERAL_TERMS_FILE",
        type=file_name,
        action="append",
        default=[],
        help="find the texts in this file, one per line",
    )
    add(
        "-E",
        "--extended_regex",
        dest="regexes",
        metavar="REGEX",
        action="append",
        default=[],
        help="find a regular expression of Python's; may be repeated",
    )
    add("-n", "--line-number", action="store_true", help="show the line where an entry begins")
    add("-H", "--with-filename", action="store_true", default=None, help="show file names")
    add("-h", "--no-filename", dest="with_filename", action="store_false", help="do not")
    add("-i", "--ignore-case", action="store_true", help="upper and lower case are the same")
    add("-v", "--invert-match", action="store_true", help="show what does not match")
    add("--no-data", action="store_true", help="leave the bodies of journaled messages out")
    add("--include-noops", action="store_true", help="search the journal's own entries as well")
    add(
        "--client",
        dest="clients",
        metavar="CLIENT",
        action="append",
        default=[],
        help="only what a client published; its name or hash; may be repeated",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
