"""Authenticator modules: the user of this instance's outgoing logons, and the proof of identity.

Source: AMPS User Guide, Providing an Identity for Outbound Connections; Command Execution
Authenticator; Providing Replication Credentials with the AMPS Multimechanism Authenticator Module.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from config_schema.secret_files import SecretFileError, find_variable
from config_schema.spec import ModuleSpec, ModuleUse
from config_schema.units import parse_count
from server.security.outgoing.kerberos import KerberosCredentials
from server.security.outgoing.source import CredentialSource, CredentialSourceError
from server.util.safe_open import read_regular
from server.util.shell_quoting import shell_command

EXEC_LIBRARY: Final = "libamps_exec_authenticator.so"
MULTI_LIBRARY: Final = "libamps_multi_authenticator.so"
DEFAULT_MAX_LENGTH: Final = "1024"

_USER_VARIABLE: Final = re.compile(r"\{\{\s*(AMPS_USER_NAME)\s*\}\}")
_COMMAND_SECONDS: Final = 10.0
"""Timeout of a command."""
_MAX_FILE_SIZE: Final = 65_536
"""Size limit of a password file, in bytes."""


@dataclass(frozen=True, slots=True)
class ConfiguredCredentials:
    """A user, and a password from the configuration or the environment; without one, an empty one.

    Without a User, it is the user that runs the process.
    """

    user: str | None = None
    password: str | None = None
    variable: str | None = None

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        return self.user or _current_user(), self._find_password()

    def _find_password(self) -> str:
        if self.variable is None:
            return self.password or ""
        try:
            password = find_variable(self.variable, os.environ)
        except SecretFileError as error:
            raise CredentialSourceError(
                f"PasswordEnvironmentVariable {self.variable}: {error}"
            ) from None
        if password is None:
            raise CredentialSourceError(
                f"PasswordEnvironmentVariable {self.variable}: there is no such variable"
            )
        return password

    def __repr__(self) -> str:
        """Omit the password: this may end up in a log."""
        return f"ConfiguredCredentials({self.user!r})"


def _current_user() -> str:
    """Return the user that runs the process, from the system or else from the environment."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")


@dataclass(frozen=True, slots=True)
class FileCredentials:
    """A user, and a password from a file.

    The file is read for each connection. Line ends at its end are not part of the password.

    Attributes:
        option: the name of the configuration option for the file.
        user: the user; None for the user of the process.
        file_name: the file.
    """

    option: str
    user: str | None
    file_name: str

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        try:
            password = await asyncio.to_thread(self._read)
        except (OSError, UnicodeDecodeError) as problem:
            why = getattr(problem, "strerror", None) or "it is no text in UTF-8"
            raise CredentialSourceError(f"{self.option} {self.file_name}: {why}") from None
        return self.user or _current_user(), password

    def _read(self) -> str:
        password = read_regular(self.file_name, _MAX_FILE_SIZE).decode().rstrip("\r\n")
        if not password:  # it may be being written; a logon without a password is never intended
            raise OSError(errno.ENODATA, "it is empty")
        return password


class CommandCredentials:
    """A user, and a password from the output of a command: a short-lived token.

    `{{AMPS_USER_NAME}}` in the command stands for the user, with any characters. The command is
    run for each connection. Line ends at the end of its output are not part of the password.

    Args:
        user: the user.
        command: the shell command.
        max_bytes: size limit of its output in bytes; the rest is dropped.
    """

    def __init__(self, user: str, command: str, max_bytes: int) -> None:
        self._user = user
        self._max_bytes = max_bytes
        pieces = _USER_VARIABLE.split(command)
        parts = list(zip(pieces[:-1:2], pieces[1::2], strict=True))
        self._command, names = shell_command(parts, pieces[-1])
        self._variables = dict.fromkeys(names, user)

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        try:
            output, code = await self._run()
        except TimeoutError:
            raise self._error(f"took longer than {_COMMAND_SECONDS:.0f} seconds") from None
        except (OSError, ValueError) as problem:
            raise self._error(f"cannot be run: {problem}") from None
        if code:
            raise self._error(f"ended with exit code {code}")
        try:
            token = output.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise self._error("has written text that is not UTF-8") from None
        if not token:
            raise self._error("has written nothing")
        return self._user, token

    def _error(self, problem: str) -> CredentialSourceError:
        """Make an error without the text of the command, which may contain secrets."""
        return CredentialSourceError(
            f"the Command that gives the password of {self._user!r} {problem}"
        )

    async def _run(self) -> tuple[bytes, int]:
        process = await asyncio.create_subprocess_shell(
            self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **self._variables},
        )
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                return await self._read(process), await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _read(self, process: asyncio.subprocess.Process) -> bytes:
        """Read the output of the command, and return its first bytes up to the limit."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        output = b""
        while chunk := await process.stdout.read(1 << 16):
            output = (output + chunk)[: self._max_bytes]
        return output


def _configured(use: ModuleUse) -> CredentialSource:
    options = use.options
    user, password = options.get("User"), options.get("Password")
    file_name = options.get("PasswordFileName")
    if password is None and file_name is not None:
        return FileCredentials("PasswordFileName", user, file_name)
    variable = options.get("PasswordEnvironmentVariable") if password is None else None
    return ConfiguredCredentials(user, password, variable)


def _command(use: ModuleUse) -> CredentialSource:
    options = use.options
    return CommandCredentials(
        options.get("UserName") or "",
        options.get("Command") or "",
        parse_count(options.get("MaxLength") or DEFAULT_MAX_LENGTH),
    )


def _several_mechanisms(use: ModuleUse) -> CredentialSource:
    """Make the module with several mechanisms; the options that are given select one."""
    options = use.options
    spn = options.get("Kerberos.SPN")
    if spn:
        return KerberosCredentials(spn, options.get("Kerberos.Keytab") or "")
    return FileCredentials(
        "LDAP.PasswordFile", options.get("LDAP.Username"), options.get("LDAP.PasswordFile") or ""
    )


AUTHENTICATOR_MODULES: Final[Mapping[str, Callable[[ModuleUse], CredentialSource]]] = {
    "amps-default-authenticator-module": _configured,
}
"""The modules that need no Modules entry, by the name in a configuration."""


AUTHENTICATOR_LIBRARIES: Final[Mapping[str, Callable[[ModuleUse], CredentialSource]]] = {
    EXEC_LIBRARY: _command,
    MULTI_LIBRARY: _several_mechanisms,
}
"""The modules that a configuration loads, by the base name of their library."""


def make_credential_source(
    use: ModuleUse | None, modules: Iterable[ModuleSpec]
) -> CredentialSource:
    """Make the authenticator of a configuration; without one, the default module.

    Args:
        use: the Authenticator element, which has been checked.
        modules: the modules that the configuration loads.
    """
    if use is None:
        return ConfiguredCredentials()
    factory = AUTHENTICATOR_MODULES.get(use.module)
    if factory is None:
        module = next(candidate for candidate in modules if candidate.name == use.module)
        factory = AUTHENTICATOR_LIBRARIES[module.library_name]
    return factory(use)
