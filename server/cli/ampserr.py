"""`ampserr`: explains the messages of the server log.

Source: AMPS User Guide, ampserr.
"""

import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.log.catalogue import CatalogueMessage, matching
from server.util.json_lines import json_line

FOUND: Final = 0
NOTHING_FOUND: Final = 1
BAD_EXPRESSION: Final = 2

_WIDTH: Final = 76


@command("ampserr", failed=BAD_EXPRESSION)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the descriptions of the messages whose ids match.

    Returns:
        The exit status: 0 if messages were found, 1 if there are none, 2 if the expression is
        invalid.
    """
    options = _parser().parse_args(arguments)
    pattern: str = options.error
    try:
        messages = matching(pattern)
    except re.error as problem:
        say(f"ampserr: '{pattern}' is not a regular expression: {problem}")
        return BAD_EXPRESSION
    if options.json:
        write_out(map(_object, messages))
        return FOUND if messages else NOTHING_FOUND
    noun = "error" if len(messages) == 1 else "errors"
    blocks = "".join(f"{describe(message)}\n" for message in messages)
    print(f"{blocks}Found {len(messages)} {noun} matching '{pattern}'.")
    return FOUND if messages else NOTHING_FOUND


def describe(message: CatalogueMessage) -> str:
    """Return one block of output: heading, description, action and the text in the log."""
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


def _object(message: CatalogueMessage) -> bytes:
    return json_line(
        {
            "id": message.id,
            "level": message.level.label,
            "description": message.meaning,
            "action": message.action,
            "text": message.template.text.strip(),
        }
    )


def _paragraph(title: str, text: str) -> str:
    """Return text wrapped and indented, with its own line breaks kept."""
    first, *others = f"{title}: {text}".splitlines()
    lines = [_wrap(first, 4), *(_wrap(line, 8) for line in others)]
    return "\n".join(lines)


def _wrap(line: str, indent: int) -> str:
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
    )


def _parser() -> CommandLineParser:
    parser = make_parser(
        "ampserr",
        "Explain the messages that the server writes to its log.",
        as_json="print a JSON object for each message",
    )
    parser.add_argument(
        "error",
        help="a message id such as 00-0015, or a regular expression that finds ids: "
        "'12-' is a whole category, '.' is everything",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
