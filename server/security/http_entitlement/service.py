"""A web service that returns permission documents.

Concurrent requests that are equal, the password included, share one answer. A refusal or a missing
answer is cached for a second, so that a client that retries continuously costs the service nothing.
At most `MOST_AT_ONCE` requests are at the desk; others wait for them here, so that a slow service
delays its own logons only.

The first request to a service has no credentials. If the response is a challenge (status 401), a
second request answers it. Redirections are not followed: they would send credentials to a host that
the configuration does not name.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Permissions Management and Request
Flow.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from server.security.deferred import Pending
from server.security.http_client import Endpoint, WebAnswer, WebClient, WebError
from server.security.http_entitlement.challenges import Unanswerable, answer, read_challenges
from server.security.http_entitlement.connections import Connections
from server.security.http_entitlement.response_parser import LARGE_BYTES, MOST_BYTES
from server.security.permission_document import DocumentError

if TYPE_CHECKING:
    from server.security.async_worker import Desk
    from server.security.authentication import Credentials
    from server.security.deferred import Later
    from server.security.http_entitlement.response_parser import Documents
    from server.security.http_entitlement.settings import Settings
    from server.security.permission_document import PermissionDocument
    from server.util.rate_limited_log import Complaints

MOST_AT_ONCE: Final = 100
"""Limit of the concurrent requests to one service."""

MOST_WAITING: Final = 10_000
"""Limit of the different logons that wait for a service; further ones are refused."""

_WAIT_SECONDS: Final = 30.0
"""Timeout of a request in the queue."""

_REFUSED_SECONDS: Final = 1.0
"""How long a refusal or a missing answer is cached."""

_UNAUTHORIZED: Final = 401
_REFUSALS: Final = (_UNAUTHORIZED, 403)

_KEY: Final = secrets.token_bytes(32)
"""A secret key, so that the cache does not reveal the passwords of clients."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a question: a document, a refusal or a problem.

    Attributes:
        document: the permissions of the user; None if the service has not sent any.
        refusal: how the service has refused the user; empty if it has not.
        problem: why there is no answer; empty if there is one.
    """

    document: PermissionDocument | None = None
    refusal: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the service.

    Attributes:
        endpoint: the service and the resource.
        headers: further headers.
        user: the user of the requested permissions.
        password: the user's password; None if the service must not see credentials.
    """

    endpoint: Endpoint
    headers: list[tuple[str, bytes]] = field(repr=False)
    user: str
    password: str | None = field(repr=False)

    def digest(self) -> bytes:
        """Return a digest that is equal for equal questions."""
        parts: list[str | bytes] = [self.endpoint.target, self.user, self.password or ""]
        for name, value in self.headers:
            parts += [name, value]
        found = hashlib.blake2b(key=_KEY, digest_size=24)
        found.update(b"-" if self.password is None else b"+")
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            found.update(len(data).to_bytes(8, "big") + data)
        return found.digest()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question in the queue, and the pending answer."""

    question: _Question
    pending: Pending[Outcome] = field(default_factory=Pending)


class Service:
    """A service with its settings. Called on the engine's thread.

    Args:
        settings: the settings.
        documents: parses its responses.
        desk: runs the requests.
        complaints: records failures.
    """

    def __init__(
        self, settings: Settings, documents: Documents, desk: Desk, complaints: Complaints
    ) -> None:
        self._settings = settings
        self._documents = documents
        self._desk = desk
        self._complaints = complaints
        client = WebClient(
            settings.tls, settings.connect_seconds, settings.request_seconds, MOST_BYTES
        )
        self._connections = Connections(client, are_kept=settings.keeps_connections)
        self._at_desk = 0
        self._waiting: deque[_Waiting] = deque()
        self._under_way: dict[bytes, Pending[Outcome]] = {}
        self._refused: dict[bytes, tuple[float, Outcome]] = {}

    def ask(self, credentials: Credentials, *, shows_them: bool) -> Later[Outcome]:
        """Request the permissions of a user.

        Args:
            credentials: the user, and the proof of identity.
            shows_them: whether to send that proof to the service.
        """
        question = self._question(credentials, shows_them)
        if isinstance(question, Outcome):
            return question
        key = question.digest()
        known = self._remembered(key) or self._under_way.get(key)
        if known is not None:
            return known
        if len(self._waiting) >= MOST_WAITING:
            outcome = Outcome(problem=f"{MOST_WAITING} logons wait for it already")
            self._complain(question.user, outcome.problem)
            return outcome
        return self._begin(key, _Waiting(question)).pending

    def forget(self) -> None:
        """Clear cached answers, so that the service is asked again."""
        self._refused.clear()
        self._under_way.clear()

    def _question(self, credentials: Credentials, shows_them: bool) -> _Question | Outcome:
        if not credentials.user.isprintable():
            return Outcome(refusal="the name has characters that no name may have")
        endpoint = self._settings.endpoint_of(credentials.user)
        if endpoint is None:
            return Outcome(refusal="the name stands for another path")
        password = credentials.password if shows_them else None
        headers = self._settings.headers_of(credentials)
        return _Question(endpoint, headers, credentials.user, password)

    def _begin(self, key: bytes, waiting: _Waiting) -> _Waiting:
        pending = self._under_way[key] = waiting.pending
        late = Outcome(problem=f"it is slow: no turn came up within {_WAIT_SECONDS:.0f} seconds")
        patience = asyncio.get_running_loop().call_later(_WAIT_SECONDS, pending.give, late)

        def take(outcome: Outcome) -> None:
            patience.cancel()
            if self._under_way.get(key) is pending:
                del self._under_way[key]
                if outcome.document is None:
                    self._refused[key] = time.monotonic() + _REFUSED_SECONDS, outcome
            if outcome.problem:
                self._complain(waiting.question.user, outcome.problem)

        pending.when_there(take)
        self._waiting.append(waiting)
        self._go_on()
        return waiting

    def _go_on(self) -> None:
        """Move questions from the queue to the desk, up to the limit."""
        while self._waiting and self._at_desk < MOST_AT_ONCE:
            waiting = self._waiting.popleft()
            if waiting.pending.is_there:  # timed out
                continue
            self._at_desk += 1
            asked = self._desk.ask(
                partial(self._find, waiting.question), lambda problem: Outcome(problem=problem)
            )
            asked.when_there(partial(self._end, waiting))

    def _end(self, waiting: _Waiting, outcome: Outcome) -> None:
        self._at_desk -= 1
        waiting.pending.give(outcome)
        self._go_on()

    def _remembered(self, key: bytes) -> Outcome | None:
        """Return a cached outcome; drop expired ones."""
        now = time.monotonic()
        while self._refused:
            first = next(iter(self._refused))
            if self._refused[first][0] > now:
                break
            del self._refused[first]
        found = self._refused.get(key)
        return None if found is None else found[1]

    def _complain(self, user: str, problem: str) -> None:
        service = self._settings.shown
        self._complaints.emit("25-0030", user, service=service, user=user, problem=problem)

    # on the desk

    async def _find(self, question: _Question) -> Outcome:
        outcome = await self._attempt(question)
        for _ in range(self._settings.retries):
            if not outcome.problem:
                break
            outcome = await self._attempt(question)
        return outcome

    async def _attempt(self, question: _Question) -> Outcome:
        try:
            found = await self._ask(question)
        except (WebError, Unanswerable) as error:
            return Outcome(problem=str(error).removeprefix(f"{question.endpoint}: "))
        if found.status in _REFUSALS:
            return Outcome(refusal=f"the web service answers with status {found.status}")
        if 300 <= found.status < 400:
            return Outcome(
                problem=f"it answers with status {found.status}: redirections are not followed"
            )
        if not 200 <= found.status < 300:
            return Outcome(problem=f"it answers with status {found.status}")
        try:
            if len(found.body) < LARGE_BYTES:
                return Outcome(self._documents.read(found.body))
            return Outcome(await asyncio.to_thread(self._documents.read, found.body))
        except DocumentError as error:
            return Outcome(problem=f"its document cannot be used: {error}")

    async def _ask(self, question: _Question) -> WebAnswer:
        """Send the question and answer challenges; answer a second one only for a stale nonce.

        Raises:
            WebError: there is no response.
            Unanswerable: a challenge cannot be answered.
        """
        endpoint, headers = question.endpoint, question.headers
        found = await self._connections.get(endpoint, headers)
        if question.password is None or any(name == "authorization" for name, _ in headers):
            return found
        for times_shown in range(2):
            challenges = read_challenges(found.all("www-authenticate"))
            is_refused = times_shown > 0 and not any(one.is_stale for one in challenges)
            if found.status != _UNAUTHORIZED or not challenges or is_refused:
                break
            shown = answer(challenges, question.user, question.password, endpoint.target)
            proof = ("authorization", shown.encode("utf-8", "surrogatepass"))
            found = await self._connections.get(endpoint, [*headers, proof])
        return found
