"""Custom authentication modules. See `library`.

The library has a function

    def create_authentication(name: str, options: Mapping[str, Sequence[str]]) -> module

which returns an object with

    async def authenticate(self, credentials: Credentials, previous: Admission | None) -> Admission

`previous` is its last answer in the same logon, if that was a challenge. If the call takes longer
than 30 seconds, raises, or returns anything else, the logon is refused. The optional function
`forget` is called when all logons are to be decided again. The optional function

    async def scram_verifier(self, user: str) -> str | None

returns the verifier of a user's password for SCRAM-SHA-256, as PostgreSQL stores it; None for
an unknown user. Clients that support SCRAM then log on by it, and send no password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from server.security.authentication import Admission, Challenge, LogonCredentials
from server.security.custom.library import clear_module_cache, make_module
from server.security.scram import read_verifier
from server.security.scram_logon import ScramLogon, VerifierAnswer

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, Options
    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.util.log_protocol import ServerLog

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which cannot be encoded as UTF-8."""

ENTRY_POINT: Final = "create_authentication"

_SCRAM_FUNCTION: Final = "scram_verifier"
_UNDECIDED: Final = "the credentials cannot be checked at the moment"


class AuthenticationModule(Protocol):
    """The object that a library makes."""

    async def authenticate(
        self, credentials: LogonCredentials, previous: Admission | None
    ) -> Admission:
        """Decide on credentials; see above."""


def load_authentication(
    module: ModuleSpec, options: Options, worker: AsyncWorker, log: ServerLog
) -> CustomAuthenticator:
    """Load a library and make its authentication module.

    Args:
        module: the module as the configuration loads it.
        options: its options, where it is used.
        worker: runs its decisions.
        log: receives an entry when one fails.

    Raises:
        CustomModuleError: the library cannot be loaded, or the made object cannot be used.
        LibraryError: likewise.
    """
    instance = make_module(module, options, ENTRY_POINT, "authenticate")
    return CustomAuthenticator(module.name, cast("AuthenticationModule", instance), worker, log)


@dataclass(frozen=True, slots=True, eq=False)
class CustomAuthenticator:
    """Adapts a module of a library to the engine.

    Attributes:
        name: its name in the configuration.
        module: the module.
        worker: runs its decisions.
        log: receives an entry when one fails.
    """

    name: str
    module: AuthenticationModule
    worker: AsyncWorker
    log: ServerLog

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return _CustomExchange(self)

    def begin_scram(self, user: str, channel_binding: bytes) -> LogonExchange | None:  # noqa: ARG002 - known later
        """See `LogonAuthenticator`."""
        if not callable(getattr(self.module, _SCRAM_FUNCTION, None)):
            return None
        return ScramLogon(self._find_verifier, channel_binding)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        clear_module_cache(self.module, self.name, self.log)

    def refuse(self, problem: str) -> Admission:
        """Refuse a logon that the module could not decide, and log the reason."""
        self.log.emit("25-0003", module=self.name, problem=problem)
        return Admission(False, "", _UNDECIDED, undecided=True)

    def _find_verifier(self, user: str) -> AnswerOrFuture[VerifierAnswer]:
        async def find() -> VerifierAnswer:
            text: object = await getattr(self.module, _SCRAM_FUNCTION)(user)
            if text is None:
                return None
            verifier = read_verifier(text) if isinstance(text, str) else None
            if verifier is None:
                return self.refuse(f"{_SCRAM_FUNCTION}: expected a verifier as SCRAM-SHA-256$...")
            return verifier

        return self.worker.submit(find, self.refuse)


def _problem(answer: object) -> str:
    """Return the reason why an answer of a module cannot be used; empty if there is none."""
    if not isinstance(answer, Admission):
        return f"expected an Admission, not {type(answer).__name__}"
    texts = {"user": answer.user, "reason": answer.reason, "token": answer.token}
    if isinstance(answer.challenge, Challenge):
        texts |= {"challenge": answer.challenge.user + answer.challenge.password}
    for name, text in texts.items():
        if not isinstance(text, str):
            return f"{name}: expected a text, not {type(text).__name__}"
        if _SURROGATE.search(text):
            return f"{name}: expected Unicode text, not half of a surrogate pair"
    if not isinstance(answer.granted, bool):
        return f"granted: expected True or False, not {type(answer.granted).__name__}"
    if not isinstance(answer.challenge, Challenge | None):
        return f"challenge: expected a Challenge, not {type(answer.challenge).__name__}"
    if answer.granted and answer.challenge is not None:
        return "expected either granted or a challenge, not both"
    if not answer.user.isprintable():
        return "user: expected a name without control characters"
    return ""


class _CustomExchange:
    """One logon.

    Args:
        authenticator: decides on it.
    """

    def __init__(self, authenticator: CustomAuthenticator) -> None:
        self._authenticator = authenticator
        self._previous_admission: Admission | None = None

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        authenticator = self._authenticator
        return authenticator.worker.submit(lambda: self._decide(credentials), authenticator.refuse)

    async def _decide(self, credentials: LogonCredentials) -> Admission:
        answer: object = await self._authenticator.module.authenticate(
            credentials, self._previous_admission
        )
        problem = _problem(answer)
        if not isinstance(answer, Admission) or problem:
            return self._authenticator.refuse(problem)
        self._previous_admission = answer
        return answer
