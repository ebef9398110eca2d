"""The help screens, made from the table of options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from server.cli.spark.options import COMMANDS, OPTIONS

_RULE = "=" * 31
_BANNER = f"{_RULE}\n- Spark - AMPS client utility -\n{_RULE}\n"


def overview() -> str:
    """Return the screen of `spark help`: the list of commands."""
    names = "\n".join(f"    {name}" for name in sorted(("help", *COMMANDS)))
    return f"""{_BANNER}Usage:

    spark help [command]

Supported Commands:

{names}

Example:

    %> spark help sow

Shows what the command 'sow' does and which options it has.
"""


def command_help(name: str) -> str:
    """Return the screen of `spark help NAME`.

    Args:
        name: one of the commands.
    """
    command = COMMANDS[name]
    required = "\n".join(_option_lines(command.required, 9))
    optional = "\n".join(_option_lines(command.optional, 13))
    explanation = "\n".join(f"    {line}" for line in command.explanation)
    return f"""{_BANNER}Usage:

  spark {name} [options]

Required Parameters:

{required}

Options:

{optional}

Example:

  % {command.example}

{explanation}
"""


def _option_lines(names: Iterable[str], width: int) -> Iterator[str]:
    for name in names:
        first, *others = OPTIONS[name].help
        yield f"  {name:<{width}} -- {first}"
        yield from (" " * (width + 6) + line for line in others)
