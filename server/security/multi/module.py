"""libamps_multi_authentication: users of a directory or of a Kerberos realm.

A module supports one of the two. With both, a Kerberos token that it did not recognise would be
sent to the directory as a password; that is why AMPS does not allow it either. Users of both need
two transports.

    credentials -> is there a password? -> which kind is it? -> LDAP: AsyncWorker, over the network
                   no: AllowAnonymous      a token or not      Kerberos: a helper thread of it

Source: AMPS User Guide, Multimethod Authentication Module.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from amperage.client.gssapi import GssError
from server.security.authentication import (
    Admission,
    AuthenticatorWithoutScram,
    Challenge,
    LogonCredentials,
    LogonExchange,
)
from server.security.kerberos import (
    KerberosAcceptor,
    KerberosService,
    KerberosTokenError,
    is_initial_token,
    read_token,
)
from server.security.ldap.directory import (
    DirectoryError,
    DirectoryLogonError,
    LdapDirectory,
    LdapDirectorySpec,
)
from server.security.multi.options import (
    MechanismKind,
    open_service,
    read_directory,
    read_kind,
    read_tls,
)
from server.util.daemon_threads import DaemonThreadPool

if TYPE_CHECKING:
    from config_schema.spec import Options
    from server.security.async_worker import AsyncWorker
    from server.security.deferred import AnswerOrFuture
    from server.util.log_protocol import ServerLog

LIBRARY: Final = "libamps_multi_authentication.so"

_MAX_CHARACTERS: Final = 1024
"""Limit of a user's name and of a password; longer ones would only cost the directory time."""
_THREADS: Final = 4
"""Threads that verify tokens: it takes a millisecond, and reads the keytab and the replay cache."""

_NO_PASSWORD: Final = "a user name and a password are required"  # noqa: S105 - a sentence
_NOT_ACCEPTED: Final = "the credentials are not accepted"
_UNDECIDED: Final = "the credentials cannot be checked at the moment"


class _UndecidedError(Exception):
    """Credentials cannot be checked. The text gives the reason."""


class _CredentialsRefusedError(Exception):
    """Credentials are not accepted. The text gives the reason, for the log."""


class Mechanism(Protocol):
    """A way to authenticate a user.

    Attributes:
        takes_passwords: whether guessing could succeed.
    """

    takes_passwords: bool

    async def authenticate(
        self, credentials: LogonCredentials, exchange: MultiExchange
    ) -> Admission:
        """Decide on credentials with a password, on the worker's thread.

        Raises:
            _CredentialsRefusedError: they are not accepted.
            _UndecidedError: they cannot be checked.
        """


class DirectoryMechanism:
    """Authenticates by a directory.

    Args:
        spec: the configuration of the directory.
    """

    takes_passwords = True

    def __init__(self, spec: LdapDirectorySpec) -> None:
        self._directory = LdapDirectory(spec)

    async def authenticate(
        self,
        credentials: LogonCredentials,
        exchange: MultiExchange,  # noqa: ARG002 - see `Mechanism`
    ) -> Admission:
        """See `Mechanism`."""
        user, password = credentials.user, credentials.password
        problem = _unfit(user, password)
        if problem:
            raise _CredentialsRefusedError(problem)
        try:
            return Admission(True, await self._directory.authenticate(user, password), "")
        except DirectoryLogonError as problem:
            raise _CredentialsRefusedError(str(problem)) from None
        except DirectoryError as problem:
            raise _UndecidedError(str(problem)) from None


def _unfit(user: str, password: str) -> str:
    """Return the reason not to query a directory; empty if there is none."""
    if not user:
        return "there is no user name"
    if len(user) > _MAX_CHARACTERS or len(password) > _MAX_CHARACTERS:
        return f"the user name or the password has more than {_MAX_CHARACTERS} characters"
    if not user.isprintable() or "\0" in password:
        return "the user name or the password has control characters"
    try:
        (user + password).encode()
    except UnicodeEncodeError:
        return "the user name or the password is no Unicode text"
    if is_initial_token(password):
        return (
            "what stands for the password is a Kerberos token, and the module is configured for "
            "LDAP; with WWWAuthenticate Negotiate, browsers have nothing else to show"
        )
    return ""


class KerberosMechanism:
    """Authenticates by Kerberos tokens.

    Args:
        service: the service that tokens must be issued for.
    """

    takes_passwords = False

    def __init__(self, service: KerberosService) -> None:
        self._service = service
        self._threads = DaemonThreadPool(_THREADS, "kerberos")

    async def authenticate(
        self, credentials: LogonCredentials, exchange: MultiExchange
    ) -> Admission:
        """See `Mechanism`."""
        try:
            token = read_token(credentials.password)
        except KerberosTokenError as problem:
            raise _CredentialsRefusedError(f"what stands for the password: {problem}") from None
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, partial(self._accept, token, credentials.user, exchange)
            )
        except GssError as problem:
            raise _CredentialsRefusedError(str(problem)) from None

    def _accept(self, token: bytes, claimed: str, exchange: MultiExchange) -> Admission:
        if exchange.acceptor is None:
            try:
                exchange.acceptor = self._service.make_acceptor()
            except GssError as problem:
                raise _UndecidedError(str(problem)) from None
        acceptor = exchange.acceptor
        answer = base64.b64encode(acceptor.step(token)).decode()
        if not acceptor.is_complete:
            return Admission(
                False, "", "a further token is required", challenge=Challenge(claimed, answer)
            )
        return Admission(True, acceptor.user, "", token=answer)


@dataclass(frozen=True, slots=True, eq=False)
class MultiAuthenticator(AuthenticatorWithoutScram):
    """The module, as the engine sees it.

    Attributes:
        name: its name in the configuration.
        mechanism: authenticates users.
        allows_anonymous: whether clients may log on anonymously, without a password.
        worker: runs its decisions.
        log: receives an entry when credentials cannot be checked.
    """

    name: str
    mechanism: Mechanism
    allows_anonymous: bool
    worker: AsyncWorker
    log: ServerLog

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return MultiExchange(self)

    def forget(self) -> None:
        """See `LogonAuthenticator`; no decisions are cached."""


class MultiExchange:
    """One logon.

    Args:
        module: decides on it.

    Attributes:
        acceptor: the state of the exchange of tokens; None before the first.
    """

    def __init__(self, module: MultiAuthenticator) -> None:
        self.acceptor: KerberosAcceptor | None = None
        self._module = module

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        if not credentials.password:
            if self._module.allows_anonymous and credentials.explicit:
                return Admission(True, "", "")
            return Admission(False, "", _NO_PASSWORD)
        return self._module.worker.submit(lambda: self._decide(credentials), self._log_undecided)

    async def _decide(self, credentials: LogonCredentials) -> Admission:
        try:
            return await self._module.mechanism.authenticate(credentials, self)
        except _CredentialsRefusedError as problem:
            return self._refuse(str(problem))
        except _UndecidedError as problem:
            return self._log_undecided(str(problem))

    def _refuse(self, problem: str) -> Admission:
        undecided = not self._module.mechanism.takes_passwords
        return Admission(False, "", _NOT_ACCEPTED, detail=problem, undecided=undecided)

    def _log_undecided(self, problem: str) -> Admission:
        self._module.log.emit("25-0003", module=self._module.name, problem=problem)
        return Admission(False, "", _UNDECIDED, detail=problem, undecided=True)


def make(name: str, options: Options, worker: AsyncWorker, log: ServerLog) -> MultiAuthenticator:
    """Make the module.

    Args:
        name: its name in the configuration.
        options: its options, where it is used.
        worker: runs its decisions.
        log: receives an entry when credentials cannot be checked.

    Raises:
        OptionsError: they cannot be used.
    """
    mechanism: Mechanism
    if read_kind(options) is MechanismKind.LDAP:
        mechanism = DirectoryMechanism(replace(read_directory(options), tls=read_tls(options)))
    else:
        mechanism = KerberosMechanism(open_service(options))
    anonymous = options.flag("AllowAnonymous", default=False)
    return MultiAuthenticator(name, mechanism, anonymous, worker, log)
