"""/healthz and /readyz: whether to restart the process, and whether to send clients here.

Requests are answered once the instance has recovered and its transports are open; an earlier probe
cannot connect, which is a failure, too.

Source: Kubernetes, API Health Endpoints; Configure Liveness, Readiness and Startup Probes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from server.admin.http.messages import (
    JSON,
    TEXT,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
)
from server.replication.links.lag_monitor import LAG_WARNING_SECONDS
from server.statistics.sources.texts import moment
from server.util.clock import WallMicroseconds

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.engine_calls import EngineCalls
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.statistics.statistics_thread import StatisticsThread

HEALTH_PATH: Final = "healthz"
READY_PATH: Final = "readyz"

_PATIENCE: Final = 1.0
"""The engine's time limit for an answer, in seconds."""

_MICROSECONDS: Final = 1_000_000
_OK: Final = 200
_UNAVAILABLE: Final = 503


class HealthCheckResult(NamedTuple):
    """The result of checking one part.

    Attributes:
        name: the part.
        problem: its trouble; empty if there is none.
        problem_since: the beginning of the trouble, in the tree's format; empty if not known.
    """

    name: str
    problem: str = ""
    problem_since: str = ""


class TransportStates(Protocol):
    """The transports of the instance."""

    @property
    def open_from_start(self) -> Mapping[str, bool]:
        """The transports that are enabled at the start, and whether they are open now."""


class Health:
    """Answers requests for both.

    Args:
        access: checks the visitor's entitlement.
        engine_calls: runs checks on the engine's thread.
        statistics: its thread has to be alive.
        transports: those that are enabled at the start have to be open.
        replication: has the destinations; None for an instance without replication.
    """

    def __init__(
        self,
        access: AccessControl,
        engine_calls: EngineCalls,
        statistics: StatisticsThread,
        transports: TransportStates,
        replication: ReplicationState | None,
    ) -> None:
        self._access = access
        self._engine_calls = engine_calls
        self._statistics = statistics
        self._transports = transports
        self._replication = replication

    async def handle_health_request(self, request: HttpRequest, visitor: Requester) -> HttpResponse:
        """Report whether the process works: if it does not, only a restart helps.

        Raises:
            HttpError: the visitor may not see it.
        """
        await self._access.require_access(visitor, f"/{HEALTH_PATH}")
        checks = [await self._check_engine([]), self._check_statistics_thread()]
        return _answer(request, checks)

    async def handle_ready_request(self, request: HttpRequest, visitor: Requester) -> HttpResponse:
        """Report whether the instance is ready for clients.

        Raises:
            HttpError: the visitor may not see it, or the request has a wrong parameter.
        """
        await self._access.require_access(visitor, f"/{READY_PATH}")
        which = request.query.get("replication", "sync")
        if which not in ("sync", "all"):
            raise HttpError(400, f"replication is {which!r}: expected sync or all.")
        found: list[HealthCheckResult] = []
        engine = await self._check_engine(found, has_all=which == "all")
        return _answer(request, [engine, self._check_statistics_thread(), *found])

    async def _check_engine(
        self, found: list[HealthCheckResult], *, has_all: bool | None = None
    ) -> HealthCheckResult:
        """Check whether the engine answers, and get its other checks if wanted.

        Args:
            found: gets the other checks.
            has_all: whether all destinations count; None if no other checks are wanted.
        """

        def look() -> list[HealthCheckResult]:
            if has_all is None:
                return []
            return [*self._check_transports(), *self._check_destinations(has_all=has_all)]

        try:
            found += await self._engine_calls.call(look, _PATIENCE)
        except HttpError as refusal:
            return HealthCheckResult("engine", str(refusal))
        return HealthCheckResult("engine")

    def _check_statistics_thread(self) -> HealthCheckResult:
        trouble = "" if self._statistics.is_alive else "its thread has ended"
        return HealthCheckResult("statistics", trouble)

    # On the engine's thread.

    def _check_transports(self) -> Iterator[HealthCheckResult]:
        for name, is_open in self._transports.open_from_start.items():
            yield HealthCheckResult(f"transport {name}", "" if is_open else "it is disabled")

    def _check_destinations(self, *, has_all: bool) -> Iterator[HealthCheckResult]:
        replication = self._replication
        if replication is None:
            return
        now = replication.elapsed_us
        waiting = {one.destination: one.since_us for one in replication.destination_lags()}
        awaited_destinations = replication.ack_tracker.awaited_destinations
        for name, own in replication.destinations.items():
            if not has_all and name not in awaited_destinations:
                continue
            waited = now - waiting.get(name, now)
            since = WallMicroseconds(replication.now_us - waited)
            title = f"destination {name}"
            if not own.is_connected:
                yield _not_connected(title, own, since)
            elif waited >= LAG_WARNING_SECONDS * _MICROSECONDS:
                yield HealthCheckResult(title, "it is behind", _moment(since))
            else:
                yield HealthCheckResult(title)


def _not_connected(
    title: str, own: ReplicationDestination, since: WallMicroseconds
) -> HealthCheckResult:
    if own.disconnected_at is None:
        return HealthCheckResult(title, "it has never been connected since this instance started")
    return HealthCheckResult(title, "it is not connected", _moment(min(own.disconnected_at, since)))


def _moment(microseconds: WallMicroseconds) -> str:
    return moment(microseconds / _MICROSECONDS)


def _answer(request: HttpRequest, checks: list[HealthCheckResult]) -> HttpResponse:
    """Return all checks as JSON, or the failed ones as text."""
    troubles = [check for check in checks if check.problem]
    status = _UNAVAILABLE if troubles else _OK
    if request.segments[-1].endswith(".json"):
        content = msgspec.json.encode(
            {
                "status": "unavailable" if troubles else "ok",
                "checks": [
                    {"name": one.name, "status": one.problem or "ok", "since": one.problem_since}
                    for one in checks
                ],
            }
        )
        document = HttpDocument(content, JSON)
    else:
        lines = [
            f"{one.name}:"
            f" {one.problem}{f', since {one.problem_since}' if one.problem_since else ''}"
            for one in troubles
        ]
        document = HttpDocument(("\n".join(lines or ["ok"]) + "\n").encode(errors="replace"), TEXT)
    return HttpResponse(document, status, headers=[("Cache-Control", "no-store")])
