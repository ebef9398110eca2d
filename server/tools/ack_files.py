"""What commands have in common that print the small files beside the journals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from config_schema.version import AMPS_VERSION, VERSION
from server.journal.layout import FormatError
from server.tools.journal_text import write_out

_Contents = TypeVar("_Contents")


def dump_files(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    unpack: Callable[[bytes], _Contents],
    dump: Callable[[Path, _Contents, int | None], Iterable[bytes]],
) -> int:
    """Print the files that a command line names.

    Args:
        parser: of the command line, made by `parser_for`.
        arguments: the command line without the program's name; that of the process if None.
        unpack: makes of a file's bytes what the file holds; raises `FormatError`.
        dump: makes the text of it, with no more of the things in it than the number says.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = parser.parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            contents = unpack(path.read_bytes())
        except (OSError, FormatError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            print(f"{parser.prog}: {path}: {why}", file=sys.stderr)
            status = 1
            continue
        write_out(dump(path, contents, options.limit))
    return status


def parser_for(name: str, description: str, *, kind: str, things: str) -> argparse.ArgumentParser:
    """Make the parser of a command's command line.

    Args:
        name: of the command.
        description: what it does, in a sentence.
        kind: of its files, as the ends of their names say it.
        things: what the files hold.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("filename", type=Path, nargs="+", help=f"a {kind} file")
    parser.add_argument("-n", "--limit", type=int, help=f"{things} to print per file at most")
    version = f"{name} {VERSION} (AMPS {AMPS_VERSION})"
    parser.add_argument("--version", action="version", version=version)
    return parser
