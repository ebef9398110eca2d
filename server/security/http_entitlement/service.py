"""A web service that returns permission documents.

Concurrent requests that are equal, the password included, share one answer. A refusal or a missing
answer is cached for a second, so that a client that retries continuously costs the service nothing.
At most `MAX_CONCURRENT_REQUESTS` requests are with the worker; others are queued here, so that a
slow service delays its own logons only.

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

from server.security.deferred import AnswerFuture
from server.security.http_client import Endpoint, HttpClient, HttpClientError, HttpClientResponse
from server.security.http_entitlement.challenges import ChallengeError, answer, read_challenges
from server.security.http_entitlement.connections import ConnectionPool
from server.security.http_entitlement.response_parser import LARGE_DOCUMENT_SIZE, MAX_DOCUMENT_SIZE
from server.security.permission_document import DocumentError

if TYPE_CHECKING:
    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonCredentials
    from server.security.deferred import AnswerOrFuture
    from server.security.http_entitlement.response_parser import DocumentParser
    from server.security.http_entitlement.settings import HttpEntitlementSettings
    from server.security.permission_document import PermissionDocument
    from server.util.rate_limited_log import RateLimitedLog

MAX_CONCURRENT_REQUESTS: Final = 100
"""Limit of the concurrent requests to one service."""

MAX_QUEUED_REQUESTS: Final = 10_000
"""Limit of the different logons that wait for a service; further ones are refused."""

_QUEUE_TIMEOUT_S: Final = 30.0
"""Timeout of a request in the queue."""

_REFUSED_SECONDS: Final = 1.0
"""How long a refusal or a missing answer is cached."""

_UNAUTHORIZED: Final = 401
_REFUSALS: Final = (_UNAUTHORIZED, 403)

_KEY: Final = secrets.token_bytes(32)
"""A secret key, so that the cache does not reveal the passwords of clients."""


@dataclass(frozen=True, slots=True)
class PermissionResponse:
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
class _PermissionRequest:
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
        hasher = hashlib.blake2b(key=_KEY, digest_size=24)
        hasher.update(b"-" if self.password is None else b"+")
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            hasher.update(len(data).to_bytes(8, "big") + data)
        return hasher.digest()


@dataclass(frozen=True, slots=True)
class _QueuedRequest:
    """A request in the queue, and the pending response."""

    request: _PermissionRequest
    pending: AnswerFuture[PermissionResponse] = field(default_factory=AnswerFuture)


class PermissionService:
    """A service with its settings. Called on the engine's thread.

    Args:
        settings: the settings.
        parser: parses its responses.
        worker: runs the requests.
        rate_limited_log: records failures.
    """

    def __init__(
        self,
        settings: HttpEntitlementSettings,
        parser: DocumentParser,
        worker: AsyncWorker,
        rate_limited_log: RateLimitedLog,
    ) -> None:
        self._settings = settings
        self._parser = parser
        self._worker = worker
        self._rate_limited_log = rate_limited_log
        client = HttpClient(
            settings.tls, settings.connect_seconds, settings.request_seconds, MAX_DOCUMENT_SIZE
        )
        self._connections = ConnectionPool(client, reuses_connections=settings.keeps_connections)
        self._active_count = 0
        self._queue: deque[_QueuedRequest] = deque()
        self._pending: dict[bytes, AnswerFuture[PermissionResponse]] = {}
        self._refusals: dict[bytes, tuple[float, PermissionResponse]] = {}

    def request_permissions(
        self, credentials: LogonCredentials, *, sends_proof: bool
    ) -> AnswerOrFuture[PermissionResponse]:
        """Request the permissions of a user.

        Args:
            credentials: the user, and the proof of identity.
            sends_proof: whether to send that proof to the service.
        """
        request = self._make_request(credentials, sends_proof)
        if isinstance(request, PermissionResponse):
            return request
        key = request.digest()
        pending = self._cached_refusal(key) or self._pending.get(key)
        if pending is not None:
            return pending
        if len(self._queue) >= MAX_QUEUED_REQUESTS:
            response = PermissionResponse(
                problem=f"{MAX_QUEUED_REQUESTS} logons wait for it already"
            )
            self._log_problem(request.user, response.problem)
            return response
        return self._enqueue(key, _QueuedRequest(request)).pending

    def forget(self) -> None:
        """Clear cached answers, so that the next request goes to the service."""
        self._refusals.clear()
        self._pending.clear()

    def _make_request(
        self, credentials: LogonCredentials, sends_proof: bool
    ) -> _PermissionRequest | PermissionResponse:
        if not credentials.user.isprintable():
            return PermissionResponse(refusal="the name has characters that no name may have")
        endpoint = self._settings.endpoint_of(credentials.user)
        if endpoint is None:
            return PermissionResponse(refusal="the name stands for another path")
        password = credentials.password if sends_proof else None
        headers = self._settings.headers_of(credentials)
        return _PermissionRequest(endpoint, headers, credentials.user, password)

    def _enqueue(self, key: bytes, queued: _QueuedRequest) -> _QueuedRequest:
        pending = self._pending[key] = queued.pending
        late = PermissionResponse(
            problem=f"it is slow: no turn came up within {_QUEUE_TIMEOUT_S:.0f} seconds"
        )
        timeout = asyncio.get_running_loop().call_later(_QUEUE_TIMEOUT_S, pending.set_result, late)

        def record_response(response: PermissionResponse) -> None:
            timeout.cancel()
            if self._pending.get(key) is pending:
                del self._pending[key]
                if response.document is None:
                    self._refusals[key] = time.monotonic() + _REFUSED_SECONDS, response
            if response.problem:
                self._log_problem(queued.request.user, response.problem)

        pending.add_done_callback(record_response)
        self._queue.append(queued)
        self._start_queued()
        return queued

    def _start_queued(self) -> None:
        """Submit queued requests to the worker, up to the limit."""
        while self._queue and self._active_count < MAX_CONCURRENT_REQUESTS:
            queued = self._queue.popleft()
            if queued.pending.is_done:  # timed out
                continue
            self._active_count += 1
            exchange = self._worker.submit(
                partial(self._fetch_with_retries, queued.request),
                lambda problem: PermissionResponse(problem=problem),
            )
            exchange.add_done_callback(partial(self._finish, queued))

    def _finish(self, queued: _QueuedRequest, response: PermissionResponse) -> None:
        self._active_count -= 1
        queued.pending.set_result(response)
        self._start_queued()

    def _cached_refusal(self, key: bytes) -> PermissionResponse | None:
        """Return a cached outcome; drop expired ones."""
        now = time.monotonic()
        while self._refusals:
            first = next(iter(self._refusals))
            if self._refusals[first][0] > now:
                break
            del self._refusals[first]
        cached = self._refusals.get(key)
        return None if cached is None else cached[1]

    def _log_problem(self, user: str, problem: str) -> None:
        service = self._settings.display_url
        self._rate_limited_log.emit("25-0030", user, service=service, user=user, problem=problem)

    # On the worker's thread:

    async def _fetch_with_retries(self, request: _PermissionRequest) -> PermissionResponse:
        response = await self._fetch(request)
        for _ in range(self._settings.retries):
            if not response.problem:
                break
            response = await self._fetch(request)
        return response

    async def _fetch(self, request: _PermissionRequest) -> PermissionResponse:
        try:
            response = await self._exchange(request)
        except (HttpClientError, ChallengeError) as error:
            return PermissionResponse(problem=str(error).removeprefix(f"{request.endpoint}: "))
        if response.status in _REFUSALS:
            return PermissionResponse(
                refusal=f"the web service answers with status {response.status}"
            )
        if 300 <= response.status < 400:
            return PermissionResponse(
                problem=f"it answers with status {response.status}: redirections are not followed"
            )
        if not 200 <= response.status < 300:
            return PermissionResponse(problem=f"it answers with status {response.status}")
        try:
            if len(response.body) < LARGE_DOCUMENT_SIZE:
                return PermissionResponse(self._parser.parse(response.body))
            return PermissionResponse(await asyncio.to_thread(self._parser.parse, response.body))
        except DocumentError as error:
            return PermissionResponse(problem=f"its document cannot be used: {error}")

    async def _exchange(self, request: _PermissionRequest) -> HttpClientResponse:
        """Send the request and answer challenges; answer a second one only for a stale nonce.

        Raises:
            HttpClientError: there is no response.
            ChallengeError: a challenge cannot be answered.
        """
        endpoint, headers = request.endpoint, request.headers
        response = await self._connections.get(endpoint, headers)
        if request.password is None or any(name == "authorization" for name, _ in headers):
            return response
        for attempt in range(2):
            challenges = read_challenges(response.all_headers("www-authenticate"))
            is_refused = attempt > 0 and not any(offer.is_stale for offer in challenges)
            if response.status != _UNAUTHORIZED or not challenges or is_refused:
                break
            shown = answer(challenges, request.user, request.password, endpoint.target)
            proof = ("authorization", shown.encode("utf-8", "surrogatepass"))
            response = await self._connections.get(endpoint, [*headers, proof])
        return response
