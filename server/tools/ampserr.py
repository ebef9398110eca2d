"""`ampserr`: explains the messages of the server log.

Source: AMPS User Guide, ampserr.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.events.catalogue import Message, matching
from server.tools.command import command

FOUND: Final = 0
NOTHING_FOUND: Final = 1
BAD_EXPRESSION: Final = 2

_WIDTH: Final = 76


@command("ampserr", failed=BAD_EXPRESSION)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is known about the messages whose ids match.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0 when messages were found, 1 when there are none, 2 for an expression that
        cannot be read.
    """
    pattern: str = _parser().parse_args(arguments).error
    try:
        messages = matching(pattern)
    except re.error as problem:
        print(f"ampserr: '{pattern}' is not a regular expression: {problem}", file=sys.stderr)
        return BAD_EXPRESSION
    noun = "error" if len(messages) == 1 else "errors"
    blocks = "".join(f"{describe(message)}\n" for message in messages)
    print(f"{blocks}Found {len(messages)} {noun} matching '{pattern}'.")
    return FOUND if messages else NOTHING_FOUND


def describe(message: Message) -> str:
    """One block of output: heading, description, action and the text that the log shows."""
    return "\n".join(
        (
            f"AMPS Message {message.id} [level = {message.level.label}]",
            "",
            _paragraph("DESCRIPTION", message.meaning),
            _paragraph("ACTION", message.action),
            _paragraph("TEXT", message.template.text.strip()),
            "",
        )
    )


def _paragraph(title: str, text: str) -> str:
    """Wrapped and indented, with the line breaks that the text has of its own."""
    first, *rest = f"{title}: {text}".splitlines()
    lines = [_wrap(first, 4), *(_wrap(line, 8) for line in rest)]
    return "\n".join(lines)


def _wrap(line: str, indent: int) -> str:
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ampserr", description="Explain the messages that the server writes to its log."
    )
    parser.add_argument(
        "error",
        help="a message id such as 00-0015, or a regular expression that finds ids: "
        "'12-' is a whole category, '.' is everything",
    )
    parser.add_argument(
        "--version", action="version", version=f"ampserr {VERSION} (AMPS {AMPS_VERSION})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
