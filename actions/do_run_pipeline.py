"""amps-action-do-run-pipeline: runs a job of the data pipeline.

A job is `amps-pipeline` in a process of its own, so that neither its memory nor its time is the
server's. Arguments are split into words before variables are replaced: a value is part of a word,
with all its spaces and quotes. The job's output goes to a temporary file; the log gets
its last line, or, if it fails, the last line of its errors.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Final

from actions.child_process import kill, start_process
from actions.module import ModuleProvisionError, Step, StepError
from actions.options import interval_s, required, template

if TYPE_CHECKING:
    from actions.context import ActionContext, VariableTemplate
    from actions.services import ActionServices
    from actions.step_options import StepOptions

_PROGRAM: Final = (sys.executable, "-m", "pipeline.cli", "--quiet")
_DEFAULT_MASTER: Final = "local[*]"
_END: Final = 4096
"""Bytes at the end of the output that are searched for its last line."""


class DoRunPipeline(Step):
    """Runs a job and waits for its end.

    It fails if the job does not end with status 0.
    """

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._job = options.get("Job") or ""
        self._timeout = required(options, "Timeout")
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments: list[VariableTemplate] = []

    def limit_s(self, context: ActionContext) -> float:
        """Return the seconds that the job may take. See `Step.limit_s`."""
        return interval_s("Timeout", self._timeout, context)

    def provision(self, services: ActionServices) -> None:
        """Keep references to the helper threads and the log.

        Raises:
            ModuleProvisionError: the arguments are no words.
        """
        self._helpers = services.helper_threads
        self._log = services.engine.log
        settings = [word for setting in self.options.all("Conf") for word in ("--conf", setting)]
        try:
            arguments = shlex.split(self.options.get("Arguments") or "")
        except ValueError as error:
            raise ModuleProvisionError(f"Arguments: {error}") from None
        master = self.options.get("Master") or _DEFAULT_MASTER
        words = ["--master", master, *settings, self._job, *arguments]
        self._arguments = [template(self.options, "Arguments", word) for word in words]

    async def run(self, context: ActionContext) -> None:
        """Run the job and wait for its end.

        Raises:
            StepError: it failed, or a variable has a value that no argument can have.
        """
        words = [_word(argument, context) for argument in self._arguments]
        began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            self._process = await start_process(self._helpers, lambda: _start(words, out, errors))
            self._log.emit("29-0120", job=self._job, process=self._process.pid)
            try:
                status = await self._helpers.call(self._process.wait)
            finally:
                self.close()
            if status < 0:
                raise StepError(f"the job was killed by {signal.Signals(-status).name}")
            if status > 0:
                raise StepError(_last_line(errors) or f"the job ended with status {status}")
            seconds = round(time.monotonic() - began, 1)
            result = _last_line(out) or None
            self._log.emit("29-0121", job=self._job, seconds=seconds, result=result)

    def close(self) -> None:
        """Kill the job, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)


def _word(argument: VariableTemplate, context: ActionContext) -> str:
    word = argument.expand_text(context)
    if "\0" in word:
        raise StepError("a variable has a zero byte, which no argument can have")
    if word.startswith("-") and argument.parts and not argument.parts[0][0]:
        raise StepError(f"a variable would become the option {word!r:.60}")
    return word


def _start(words: list[str], out: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - the job that the operator configured
        [*_PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=errors,
        start_new_session=True,  # so that it can be killed with everything that it starts
    )


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _END, 0))
    lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
