"""The common part of the commands that print the small files beside the journals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from server.app.command_line import CommandLineParser, count, make_parser
from server.app.stdio import say
from server.cli.journal_text import write_out
from server.cli.read_errors import reason
from server.storage.journal.format.layout import JournalFormatError
from server.util.safe_open import read_regular

_Contents = TypeVar("_Contents")
_Dump: TypeAlias = Callable[[Path, _Contents, int | None], Iterable[bytes]]
"""Renders the contents of a file; the number is the maximum of items to print."""


def dump_files(
    parser: CommandLineParser,
    arguments: Sequence[str] | None,
    unpack: Callable[[bytes], _Contents],
    dump: _Dump[_Contents],
    objects: _Dump[_Contents],
) -> int:
    """Print the files that a command line names.

    Args:
        parser: parser of the command line, made by `parser_for`.
        arguments: the command line without the program's name; that of the process if None.
        unpack: parses a file's bytes; raises `JournalFormatError`.
        dump: renders the contents as text.
        objects: renders the contents as lines of JSON.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = parser.parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            contents = unpack(read_regular(path))
        except (OSError, JournalFormatError) as problem:
            say(f"{parser.prog}: {reason(path, problem)}")
            status = 1
            continue
        write_out((objects if options.json else dump)(path, contents, options.limit))
    return status


def parser_for(name: str, description: str, *, kind: str, items: str) -> CommandLineParser:
    """Return the parser of a command's command line.

    Args:
        name: name of the command.
        description: its purpose, in a sentence.
        kind: kind of its files, as in the ends of their names.
        items: the noun for the items in the files.
    """
    parser = make_parser(
        name, description, as_json=f"print JSON: an object for each file, and each of its {items}"
    )
    parser.add_argument("filename", type=Path, nargs="+", help=f"a {kind} file")
    parser.add_argument("-n", "--limit", type=count, help=f"{items} to print per file at most")
    return parser
