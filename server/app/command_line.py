"""The common part of all command lines: help, version, completion and error messages.

An invalid command line yields one line on standard error, with advice, and exit status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from config_schema.version import AMPS_VERSION, VERSION
from server.app.completion.argparse_line import WordKinds, line_of
from server.app.completion.lines import WordKind
from server.app.completion.scripts import SHELLS, script

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

WRONG_USAGE: Final = 2
"""The exit status for an invalid command line."""

_UNKNOWN: Final = "unrecognized arguments: "
"""The beginning of argparse's message about unknown options."""


class CommandLineParser(argparse.ArgumentParser):
    """Parses a command line. `make_parser` makes one with the options that all commands have."""

    def error(self, message: str) -> NoReturn:
        """Print the error of the command line, and exit."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message}{self._hint(message)}\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print a message; unlike argparse, raise an error if standard output cannot be written."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def _hint(self, message: str) -> str:
        if message.startswith(_UNKNOWN):
            option = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
            close = get_close_matches(option, self._option_string_actions, n=1)
            if option.startswith("-") and close:
                return f"; did you mean {close[0]}?"
        return f"; see {self.prog} --help"


def make_parser(
    name: str,
    description: str,
    *,
    usage: str | None = None,
    epilog: str | None = None,
    as_json: str | None = None,
    help_names: Sequence[str] = ("-h", "--help"),
) -> CommandLineParser:
    """Make the parser of a command, with the options that all commands have.

    Args:
        name: the command's name.
        description: its purpose, in a sentence.
        usage: the first line of its help; made from its arguments if None.
        epilog: the last sentence of its help.
        as_json: the help of `--json`; None for a command without that option.
        help_names: the names of the option that shows the help.
    """
    parser = CommandLineParser(
        prog=name, description=description, usage=usage, epilog=epilog, add_help=False
    )
    add = parser.add_argument_group("options of all commands").add_argument
    if as_json is not None:
        add("--json", action="store_true", help=as_json)
    add("--print-completion", action=CompletionAction)
    add(
        "--version",
        action="version",
        version=version_line(name),
        help="show the version, then exit",
    )
    add(*help_names, action="help", help="show this, then exit")
    return parser


def version_line(name: str) -> str:
    """Return the output of a command's `--version`."""
    return f"{name} {VERSION} (AMPS {AMPS_VERSION})"


def count(text: str) -> int:
    """Parse an argument that is a count.

    Raises:
        argparse.ArgumentTypeError: it is not a number from 0 up.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number from 0 up, not {text!r}")


def file_name(text: str) -> str:
    """Return an argument that is the name of a file, which shells complete."""
    return text


def directory(text: str) -> Path:
    """Parse an argument that is the name of a directory, which shells complete.

    Raises:
        argparse.ArgumentTypeError: it is no directory.
    """
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return path


class CompletionAction(argparse.Action):
    """Prints the completion script for a shell, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(
            option_strings,
            dest,
            choices=SHELLS,
            metavar="SHELL",
            help=f"print what completes this command in a shell ({', '.join(SHELLS)}), then exit",
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - actions get it
        values: object,
        option_string: str | None = None,  # noqa: ARG002 - argparse.Action's
    ) -> NoReturn:
        """See `argparse.Action`."""
        sys.stdout.write(script(str(values), parser.prog, line_of(parser, _KINDS)))
        sys.stdout.flush()
        parser.exit()


_KINDS: Final[WordKinds] = {
    Path: WordKind.FILE,
    file_name: WordKind.FILE,
    directory: WordKind.DIRECTORY,
}
