"""The description of spark's command line for shell completion, from its table of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.app.completion.lines import Argument, Kind, Line, Option, Value
from server.app.completion.scripts import SHELLS
from server.cli.spark.options import COMMANDS, OPTIONS

_FILES: Final = frozenset({"cafile", "certificate", "file", "key", "passwordfile"})
_GENERAL: Final = (
    Option(
        ("--print-completion",),
        "print what completes spark in a shell",
        Value("SHELL", words=SHELLS),
    ),
    Option(("--version",), "show the version"),
    Option(("-h", "--help"), "show the commands"),
)


def command_line() -> Line:
    """Return the description of spark's command line."""
    commands = {
        name: Line(
            help=" ".join(command.explanation),
            options=tuple(map(_option, sorted((*command.required, *command.optional)))),
        )
        for name, command in sorted(COMMANDS.items())
    }
    topic = Argument(Value("command", words=tuple(sorted(COMMANDS))), is_optional=True)
    return Line(
        options=_GENERAL,
        commands={"help": Line(help="Shows what a command does.", arguments=(topic,)), **commands},
    )


def _option(name: str) -> Option:
    option = OPTIONS[name]
    value = None
    if option.read is not None:
        value = Value(name, Kind.FILE if name in _FILES else Kind.OTHER)
    return Option((f"-{name}",), _joined(option.help), value)


def _joined(lines: Sequence[str]) -> str:
    return " ".join(lines)
