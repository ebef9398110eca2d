"""`amps-grep`: finds entries in server logs and in journals.

A log entry may have several lines, and is found and printed as a whole. In journals the text that
`amps_journal_dump` prints is searched, and the messages' bodies.

Source: AMPS User Guide, amps-grep; Using amps-grep to Find Information in Logs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.journal.clients import server_made_identity
from server.journal.inspection import Slot
from server.journal.layout import MAGIC, encode_text
from server.journal.naming import COMPRESSED, JOURNAL
from server.tools.command import command
from server.tools.journal_text import entry_text, header_text, is_noop, open_reader, write_out
from server.wire.bookmarks import client_hash

FOUND: Final = 0
NOTHING_FOUND: Final = 1
PROBLEM: Final = 2

_ENTRY_START: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

Match = Callable[[bytes], bool]


@dataclass(slots=True)
class _Search:
    """What to look for and how to print it, and what came of it."""

    options: argparse.Namespace
    matches: Match
    with_names: bool
    found: bool = False
    problem: bool = False


@command("amps-grep", failed=PROBLEM)
def main(arguments: Sequence[str] | None = None) -> int:
    """Search logs and journals.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0 when something was found, 1 when not, 2 when something cannot be read.
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
        print(f"amps-grep: {problem}", file=sys.stderr)
        return PROBLEM
    except OSError as problem:
        print(f"amps-grep: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return PROBLEM
    with_names = len(files) > 1 if options.with_filename is None else options.with_filename
    search = _Search(options, matches, with_names)
    write_out(_search_all(search, files))
    if search.problem:
        return PROBLEM
    return FOUND if search.found else NOTHING_FOUND


def _search_all(search: _Search, files: Sequence[str]) -> Iterator[bytes]:
    if not files:
        yield from _search_log(search, "(standard input)", sys.stdin.buffer)
    for name in files:
        path = Path(name)
        try:
            if _is_journal(path):
                yield from _search_journal(search, path)
            else:
                with path.open("rb") as lines:
                    yield from _search_log(search, name, lines)
        except OSError as problem:
            _complain(search, f"{name}: {problem.strerror or problem}")
        except ValueError as problem:
            _complain(search, str(problem))


def _complain(search: _Search, text: str) -> None:
    search.problem = True
    print(f"amps-grep: {text}", file=sys.stderr)


def _is_journal(path: Path) -> bool:
    if path.name.endswith((JOURNAL, COMPRESSED)):
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _search_journal(search: _Search, path: Path) -> Iterator[bytes]:
    reader = open_reader(path)
    options = search.options
    instance = "" if reader.header is None else reader.header.instance
    hashes = _hashes(options.clients, instance)
    yield header_text(reader)
    for slot in reader.slots():
        if is_noop(slot) and not options.include_noops:
            continue
        if hashes and not _is_of(slot, hashes):
            continue
        if search.matches(entry_text(slot)) == options.invert_match:
            continue
        search.found = True
        prefix = encode_text(f"{path}:\n") if search.with_names else b""
        yield prefix + entry_text(slot, with_data=not options.no_data)


def _is_of(slot: Slot, hashes: set[int]) -> bool:
    return slot.entry is not None and slot.entry.client in hashes


def _hashes(clients: Iterable[str], instance: str) -> set[int]:
    """The hashes under which messages of clients may be recorded."""
    names = {int(one) if one.isascii() and one.isdigit() else client_hash(one) for one in clients}
    return names | {server_made_identity(one, instance) for one in names}


def _search_log(search: _Search, name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    options = search.options
    clients = [encode_text(one) for one in options.clients]
    for number, entry in _log_entries(lines):
        if clients and not any(one in entry for one in clients):
            continue
        if search.matches(entry) == options.invert_match:
            continue
        search.found = True
        prefix = encode_text(f"{name}:") if search.with_names else b""
        if options.line_number:
            prefix += f"{number}:".encode()
        yield prefix + (entry if entry.endswith(b"\n") else entry + b"\n")


def _log_entries(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The entries of a log with the numbers of their first lines."""
    entry, start = b"", 1
    for number, line in enumerate(lines, 1):
        if _ENTRY_START.match(line) or not entry:
            if entry:
                yield start, entry
            entry, start = line, number
        else:
            entry += line
    if entry:
        yield start, entry


def _matcher(options: argparse.Namespace) -> Match:
    """Whether a text contains any of the terms; everything does where none are asked for."""
    terms = [encode_text(one) for one in options.terms]
    for path in options.term_files:
        terms += [line for line in Path(path).read_bytes().splitlines() if line]
    if not (terms or options.term_files or options.regexes):
        return lambda _: not options.invert_match
    flags = re.IGNORECASE if options.ignore_case else 0
    patterns = [encode_text(one) for one in options.regexes]  # each with flags of its own
    if terms:
        patterns.append(b"|".join(map(re.escape, terms)))
    searches = [re.compile(one, flags).search for one in patterns]
    return lambda text: any(search(text) for search in searches)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps-grep",
        usage="amps-grep [options] TERM [files]\n       amps-grep [options] -e TERM [files]",
        description="Find entries in server logs and in journals.",
        add_help=False,
    )
    add = parser.add_argument
    add("files", nargs="*", help="logs and journals; standard input if there are none")
    add("-e", "--search_term", dest="terms", metavar="TERM", action="append", default=[])
    add(
        "-f", "--file", dest="term_files", metavar="LITERAL_TERMS_FILE", action="append", default=[]
    )
    add("-E", "--extended_regex", dest="regexes", metavar="REGEX", action="append", default=[])
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
    add("--help", action="help", help="show this and exit")
    add("--version", action="version", version=f"amps-grep {VERSION} (AMPS {AMPS_VERSION})")
    return parser


if __name__ == "__main__":
    sys.exit(main())
