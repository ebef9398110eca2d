"""amps-action-do-execute-system: runs a command of the operating system.

Theory of operation. The command is the operator's and goes to the shell as written, but the values
of variables may be anybody's. So the shell never sees them as text to parse: each value becomes a
variable of the command's environment, and the command refers to it. What a shell puts in place of a
variable it does not parse again, apart from splitting it into words and looking for file names,
which double quotes prevent. So a reference is `"${AMPERAGE_1}"` outside of quotes, `${AMPERAGE_1}`
inside double quotes, and inside single quotes, where there are no variables, these are closed
before and opened again after it. Only an operator who has a value parsed (eval, sh -c) gets it
parsed.

The command and what it started are killed when they take too long, or when the instance stops.

Source: AMPS User Guide, Execute System Command.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from actions.child_process import kill, started
from actions.context import Template
from actions.module import Step, StepFailed
from config_schema.units import parse_interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.context import Context
    from actions.services import Services
    from config_schema.spec import Options

_DEFAULT_LIMIT: Final = "60s"
_NANOSECONDS: Final = 1e9


class DoExecuteSystem(Step):
    """Runs a shell command in the directory, and with the rights, of the server.

    It fails if the command does not end with status 0.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._command, self._names = shell_command(Template(options.get("Command") or ""))
        self._limit = parse_interval(options.get("Timeout") or _DEFAULT_LIMIT) / _NANOSECONDS
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def limit(self) -> float:
        """Seconds that the command may take."""
        return self._limit

    def provision(self, services: Services) -> None:
        """Take note of the helper threads."""
        self._helpers = services.helpers

    async def run(self, context: Context) -> None:
        """Run the command and wait for its end.

        Raises:
            StepFailed: it failed, or was given a value that no command can be given.
        """
        environment = _environment(self._names, context)
        self._process = await started(self._helpers, lambda: _start(self._command, environment))
        try:
            status = await self._helpers.call(self._process.wait)
        finally:
            self.close()
        if status < 0:
            raise StepFailed(f"the command was killed by {signal.Signals(-status).name}")
        if status > 0:
            raise StepFailed(f"the command ended with status {status}")

    def close(self) -> None:
        """Kill the command, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)


def shell_command(template: Template) -> tuple[str, Mapping[str, str]]:
    """The command for the shell, and the environment variables that it refers to.

    Returns:
        The command, and by the name of each environment variable that of the context variable
        whose value it has.
    """
    names: dict[str, str] = {}
    pieces: list[str] = []
    quote = ""
    for number, (before, name) in enumerate(template.parts, 1):
        quote = _quote_at_end(before, quote)
        variable = f"AMPERAGE_{number}"
        names[variable] = name
        pieces += (before, _REFERENCES[quote].format(variable))
    return "".join([*pieces, template.tail]), names


_REFERENCES: Final = {"": '"${{{}}}"', '"': "${{{}}}", "'": "'\"${{{}}}\"'"}
"""How to refer to a variable, by the quotes that are open."""


def _quote_at_end(text: str, quote: str) -> str:
    """The quote that is open at the end of a piece of a command, "" if none is."""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and quote != "'":
            position += 1
        elif character == quote:
            quote = ""
        elif character in "'\"" and not quote:
            quote = character
        position += 1
    return quote


def _environment(names: Mapping[str, str], context: Context) -> dict[bytes, bytes]:
    environment = dict(os.environb)
    for variable, name in names.items():
        value = context[name]
        if b"\0" in value:
            raise StepFailed(f"the value of {name} has a zero byte, which no command can be given")
        environment[variable.encode()] = value
    return environment


def _start(command: str, environment: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S602 - a shell command is what the operator wrote
        command,
        shell=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # so that it can be killed with everything that it starts
    )
