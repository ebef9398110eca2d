"""The supported shells, with the module that makes the script for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from server.app.completion import bash, fish, zsh
from server.app.completion.lines import CompletionLine, function_name

_SCRIPTS: Final[Mapping[str, Callable[[str, CompletionLine], str]]] = {
    "bash": bash.script,
    "fish": fish.script,
    "zsh": zsh.script,
}

SHELLS: Final = tuple(_SCRIPTS)


def script(shell: str, command: str, line: CompletionLine) -> str:
    """Return the script that completes a command.

    Args:
        shell: one of `SHELLS`.
        command: the command's name.
        line: the description of its command line.
    """
    return _SCRIPTS[shell](command, line)


def file_name(shell: str, command: str) -> str:
    """Return the file name that a shell expects for the script of a command."""
    names = {"bash": command, "fish": f"{command}.fish", "zsh": function_name(command)}
    return names[shell]
