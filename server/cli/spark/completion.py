"""The description of spark's command line for shell completion, from its table of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.app.completion.lines import (
    CompletionArgument,
    CompletionLine,
    CompletionOption,
    CompletionValue,
    WordKind,
)
from server.app.completion.scripts import SHELLS
from server.cli.spark.options import COMMANDS, OPTIONS

_FILES: Final = frozenset({"cafile", "certificate", "file", "key", "passwordfile"})
_GENERAL: Final = (
    CompletionOption(
        ("--print-completion",),
        "print a completion script for a shell",
        CompletionValue("SHELL", words=SHELLS),
    ),
    CompletionOption(("--version",), "show the version"),
    CompletionOption(("-h", "--help"), "show the commands"),
)


def command_line() -> CompletionLine:
    """Return the description of spark's command line."""
    commands = {
        name: CompletionLine(
            help=" ".join(command.explanation),
            options=tuple(map(_option, sorted((*command.required, *command.optional)))),
        )
        for name, command in sorted(COMMANDS.items())
    }
    topic = CompletionArgument(
        CompletionValue("command", words=tuple(sorted(COMMANDS))), is_optional=True
    )
    return CompletionLine(
        options=_GENERAL,
        commands={
            "help": CompletionLine(help="Shows what a command does.", arguments=(topic,)),
            **commands,
        },
    )


def _option(name: str) -> CompletionOption:
    option = OPTIONS[name]
    value = None
    if option.parse is not None:
        value = CompletionValue(name, WordKind.FILE if name in _FILES else WordKind.OTHER)
    return CompletionOption((f"-{name}",), _joined(option.help), value)


def _joined(lines: Sequence[str]) -> str:
    return " ".join(lines)
