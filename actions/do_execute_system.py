"""amps-action-do-execute-system: runs a command of the operating system.

The shell never parses values of variables: see server/util/shell_quoting.py.
The command and its child processes are killed on a timeout, or when the instance stops.

Source: AMPS User Guide, Execute System Command.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from actions.child_process import kill, start_process
from actions.module import Step, StepError
from actions.options import interval_s, required
from server.util.shell_quoting import shell_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoExecuteSystem(Step):
    """Runs a shell command in the directory, and with the rights, of the server.

    It fails if the command does not end with status 0.
    """

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        command = required(options, "Command")
        self._command, self._variable_names = shell_command(command.parts, command.tail)
        self._timeout = required(options, "Timeout")
        self._process: subprocess.Popen[bytes] | None = None

    def limit_s(self, context: ActionContext) -> float:
        """Return the seconds that the command may take. See `Step.limit_s`."""
        return interval_s("Timeout", self._timeout, context)

    async def run(self, context: ActionContext) -> None:
        """Run the command and wait for its end.

        Raises:
            StepError: it failed, or a variable has a value that no command can have.
        """
        environment = _environment(self._variable_names, context)
        self._process = await start_process(
            self.services.helper_threads, lambda: _start(self._command, environment)
        )
        try:
            status = await self.services.helper_threads.call(self._process.wait)
        finally:
            self.close()
        if status < 0:
            raise StepError(f"the command was killed by {signal.Signals(-status).name}")
        if status > 0:
            raise StepError(f"the command ended with status {status}")

    def close(self) -> None:
        """Kill the command, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)


def _environment(names: Mapping[str, str], context: ActionContext) -> dict[bytes, bytes]:
    environment = dict(os.environb)
    for variable, name in names.items():
        value = context[name]
        if b"\0" in value:
            raise StepError(f"the value of {name} has a zero byte, which no command can be given")
        environment[variable.encode()] = value
    return environment


def _start(command: str, environment: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S602 - the operator wrote a shell command
        command,
        shell=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # so that it can be killed with everything that it starts
    )
