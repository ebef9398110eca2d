"""Custom authentication modules. See `library`.

The library has a function

    def create_authentication(name: str, options: Mapping[str, Sequence[str]]) -> module

which returns an object with

    async def authenticate(self, credentials: Credentials, previous: Admission | None) -> Admission

`previous` is its last answer in the same logon, if that was a challenge. If the call takes longer
than 30 seconds, raises, or returns anything else, the logon is refused. The optional function
`forget` is called when all logons are to be decided again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, cast

from server.security.authentication import Admission, Challenge, LogonCredentials
from server.security.custom.library import clear_module_cache, make_module

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, Options
    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.util.log_protocol import ServerLog

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which cannot be encoded as UTF-8."""

ENTRY_POINT: Final = "create_authentication"


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


class CustomAuthenticator:
    """Adapts a module of a library to the engine.

    Args:
        name: its name in the configuration.
        module: the module.
        worker: runs its decisions.
        log: receives an entry when one fails.
    """

    def __init__(
        self, name: str, module: AuthenticationModule, worker: AsyncWorker, log: ServerLog
    ) -> None:
        self.name: Final = name
        self.module: Final = module
        self.worker: Final = worker
        self.log: Final = log

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return _CustomExchange(self)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        clear_module_cache(self.module, self.name, self.log)


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
        return self._authenticator.worker.submit(lambda: self._decide(credentials), self._refuse)

    async def _decide(self, credentials: LogonCredentials) -> Admission:
        answer: object = await self._authenticator.module.authenticate(
            credentials, self._previous_admission
        )
        problem = _problem(answer)
        if not isinstance(answer, Admission) or problem:
            return self._refuse(problem)
        self._previous_admission = answer
        return answer

    def _refuse(self, problem: str) -> Admission:
        authenticator = self._authenticator
        authenticator.log.emit("25-0003", module=authenticator.name, problem=problem)
        reason = "the credentials cannot be checked at the moment"
        return Admission(False, "", reason, undecided=True)
