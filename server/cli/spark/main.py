"""The command itself: selects the help screen or command, and returns the exit code.

Exit codes: 0 done, 1 it did not work, 2 the command line is wrong, 130 interrupted. A closed
standard output is a success: 0.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from setproctitle import setproctitle

from amperage.client import ClientError, CommandError, ConnectError
from amperage.client.uri import without_passwords
from server.app.command_line import version_line
from server.app.completion.scripts import SHELLS, script
from server.cli.entry_point import command
from server.cli.spark.completion import command_line
from server.cli.spark.connection import RefusedLogonError, explain
from server.cli.spark.help import command_help, overview
from server.cli.spark.options import COMMANDS, UsageError, parse
from server.cli.spark.run import RUN, RefusedMessagesError
from server.cli.spark.sources import MessageSourceError

_STANDARD_OUTPUT: Final = 1
_HELP: Final = ("help", "--help", "-h")
_HELP_ARGUMENTS: Final = (["--help"], ["-h"])
"""Arguments after a command's name that request its help."""


@command("spark")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run spark.

    Args:
        arguments: the words after the program's name; None takes the process's own.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "help"
    try:
        if name == "--print-completion":
            sys.stdout.write(_completion(words[1:]))
            return 0
        with open(_STANDARD_OUTPUT, "wb", closefd=False) as output:
            if name == "--version":
                output.write(f"{version_line('spark')}\n".encode())
            elif name in _HELP:
                output.write(_help(words[1:]).encode())
            elif words[1:] in _HELP_ARGUMENTS:
                output.write(_help([name]).encode())
            else:
                settings = parse(_known_command(name), words[1:])
                _hide_passwords(words)
                RUN[name](settings, output)
    except UsageError as error:
        return _fail(f"spark {name}: {error}", 2)
    except (ConnectError, RefusedLogonError) as error:
        return _fail(str(error), 1)
    except CommandError as error:
        return _fail(f"spark {name}: {explain(error)}", 1)
    except RefusedMessagesError as error:
        for line in str(error).splitlines():
            _fail(f"spark {name}: {line}", 1)
        return 1
    except (ClientError, MessageSourceError) as error:
        return _fail(f"spark {name}: {error}", 1)
    return 0


def _hide_passwords(words: Sequence[str]) -> None:
    """Hide the passwords of the command line from process listings from now on."""
    shown = list(map(without_passwords, words))
    if shown != list(words):
        setproctitle(shlex.join(["spark", *shown]))


def _help(topics: Sequence[str]) -> str:
    if not topics or topics[0] == "help":
        return overview()
    return command_help(_known_command(topics[0]))


def _completion(words: Sequence[str]) -> str:
    if len(words) != 1 or words[0] not in SHELLS:
        raise UsageError(f"expected a shell: {', '.join(SHELLS)}")
    return script(words[0], "spark", command_line())


def _known_command(name: str) -> str:
    if name in COMMANDS:
        return name
    close = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(COMMANDS))}"
    raise UsageError(f"unknown command {name}; {hint}")


def _fail(message: str, code: int) -> int:
    print(" ".join(message.splitlines()), file=sys.stderr)  # a server's text may have several lines
    return code
