"""Sources of passwords and tokens: files, environment variables and commands.

A secret is read again whenever it is needed. Line ends at the end of a file or an output are
removed. Errors never contain any part of a secret.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from amperage.client.errors import CredentialsError

MAX_SECRET_SIZE: Final = 65_536
"""The maximum size of a password or a token, in bytes."""

SECRET_COMMAND_TIMEOUT_S: Final = 10.0
"""Default timeout of a command, in seconds."""

USER_VARIABLE: Final = "AMPS_USER_NAME"
"""The environment variable with the name of the user, for commands."""


class SecretSource(Protocol):
    """The source of a secret."""

    def read(self, user: str | None) -> str:
        """Read the secret.

        Args:
            user: the user who logs on.

        Raises:
            CredentialsError: the secret cannot be read.
        """


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that contains only a secret.

    Attributes:
        path: the file.
    """

    path: str | Path

    def read(self, _user: str | None) -> str:
        """Read the file; see `SecretSource.read`."""
        try:
            with Path(self.path).open("rb") as file:
                content = file.read(MAX_SECRET_SIZE + 1)
        except OSError as error:
            raise CredentialsError(f"{self.path}: {error.strerror or error}") from None
        return _text(content, str(self.path))


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """An environment variable, or the file that the variable NAME_FILE names.

    Attributes:
        name: the variable.
    """

    name: str

    def read(self, user: str | None) -> str:
        """Read the variable; see `SecretSource.read`."""
        value = os.environ.get(self.name)
        path = os.environ.get(f"{self.name}_FILE")
        if not value and path:
            return SecretFile(path).read(user)
        if not value:
            raise CredentialsError(f"there is no environment variable {self.name}")
        return value


@dataclass(frozen=True, slots=True)
class SecretCommand:
    """A command that writes a secret to its standard output.

    It is run without a shell. Its environment variable AMPS_USER_NAME has the user's name.

    Attributes:
        command: the program and its arguments; a text is split as a shell would, with quotes.
        timeout: the timeout of the command, in seconds.
    """

    command: str | Sequence[str]
    timeout: float = SECRET_COMMAND_TIMEOUT_S

    def read(self, user: str | None) -> str:
        """Run the command; see `SecretSource.read`."""
        try:
            words = shlex.split(self.command) if isinstance(self.command, str) else self.command
            process = subprocess.Popen(  # noqa: S603 - the command is from the caller
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, USER_VARIABLE: user or ""},
            )
        except (OSError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CredentialsError(f"{self._name} cannot be run: {reason}") from None
        try:
            output = self._output(process)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise CredentialsError(
                f"{self._name} took longer than {self.timeout:g} seconds"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode and len(output) <= MAX_SECRET_SIZE:
            raise CredentialsError(f"{self._name} ended with exit code {process.returncode}")
        return _text(output, self._name)

    def _output(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return the output of the command; stop reading it once it is too long."""
        deadline = time.monotonic() + self.timeout
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        output = b""
        with process.stdout as pipe:
            while len(output) <= MAX_SECRET_SIZE:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([pipe], [], [], left)[0]:
                    raise TimeoutError
                chunk = os.read(pipe.fileno(), MAX_SECRET_SIZE)
                if not chunk:
                    process.wait(max(0.0, deadline - time.monotonic()))
                    return output
                output += chunk
        return output

    @property
    def _name(self) -> str:
        """The name for errors: without the command, which may contain secrets."""
        return "the command that gives the password"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


def _text(content: bytes, where: str) -> str:
    if len(content) > MAX_SECRET_SIZE:
        raise CredentialsError(f"{where}: expected at most {MAX_SECRET_SIZE} bytes")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise CredentialsError(f"{where}: expected a text in UTF-8") from None
    if not text:
        raise CredentialsError(f"{where}: there is nothing")
    return text
