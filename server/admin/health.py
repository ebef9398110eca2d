"""/healthz and /readyz: whether to restart the process, and whether to send clients to it.

Requests are answered once the instance has recovered and its transports are open; an earlier probe
cannot connect, which is a failure, too.

Source: Kubernetes, API Health Endpoints; Configure Liveness, Readiness and Startup Probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from server.admin.http.messages import (
    TEXT,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
    json_response,
    uncached_response,
)
from server.replication.links.lag_monitor import LAG_WARNING_SECONDS
from server.statistics.sources.texts import moment_of_us
from server.util.clock import MICROSECONDS_PER_SECOND, WallMicroseconds

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.engine_calls import EngineCalls
    from server.app.wiring.drain import InstanceDrain
    from server.app.wiring.transport_table import TransportTable
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.statistics.statistics_thread import StatisticsThread

HEALTH_PATH: Final = "healthz"
READY_PATH: Final = "readyz"

_ENGINE_TIMEOUT_S: Final = 1.0
"""The engine's time limit for an answer, in seconds."""

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


class Health:
    """Answers requests for both.

    Args:
        access: checks the requester's entitlement.
        engine_calls: runs checks on the engine's thread.
        statistics: its thread has to be alive.
        transports: a transport that is enabled at the start has to be open.
        replication: has the destinations; None for an instance without replication.
        drain: makes the instance unavailable for clients.
    """

    def __init__(
        self,
        access: AccessControl,
        engine_calls: EngineCalls,
        statistics: StatisticsThread,
        transports: TransportTable,
        replication: ReplicationState | None,
        drain: InstanceDrain,
    ) -> None:
        self._access = access
        self._engine_calls = engine_calls
        self._statistics = statistics
        self._transports = transports
        self._replication = replication
        self._drain = drain

    async def handle_health_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Report whether the process works: if it does not, only a restart helps.

        Raises:
            HttpError: the requester may not see it.
        """
        await self._access.require_access(requester, f"/{HEALTH_PATH}")
        checks = [await self._check_engine([]), self._check_statistics_thread()]
        return _answer(request, checks)

    async def handle_ready_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Report whether the instance is ready for clients.

        Raises:
            HttpError: the requester may not see it, or the request has a wrong parameter.
        """
        await self._access.require_access(requester, f"/{READY_PATH}")
        scope = request.query.get("replication", "sync")
        if scope not in ("sync", "all"):
            raise HttpError(400, f"replication is {scope!r}: expected sync or all.")
        return _answer(request, await self.check_ready(counts_all=scope == "all"))

    async def check_ready(self, *, counts_all: bool) -> list[HealthCheckResult]:
        """Return the results of all checks.

        Args:
            counts_all: whether destinations count that publishers do not wait for.
        """
        checks: list[HealthCheckResult] = []
        engine = await self._check_engine(checks, counts_all=counts_all)
        return [engine, self._check_statistics_thread(), *checks]

    async def _check_engine(
        self, checks: list[HealthCheckResult], *, counts_all: bool | None = None
    ) -> HealthCheckResult:
        """Check whether the engine answers, and add its other checks if requested.

        Args:
            checks: gets the other checks.
            counts_all: whether all destinations count; None if no other checks are requested.
        """

        def check() -> list[HealthCheckResult]:
            if counts_all is None:
                return []
            return [
                *self._check_drain(),
                *self._check_transports(),
                *self._check_destinations(counts_all=counts_all),
            ]

        try:
            checks += await self._engine_calls.call(check, _ENGINE_TIMEOUT_S)
        except HttpError as refusal:
            return HealthCheckResult("engine", str(refusal))
        return HealthCheckResult("engine")

    def _check_statistics_thread(self) -> HealthCheckResult:
        problem = "" if self._statistics.is_alive else "its thread has ended"
        return HealthCheckResult("statistics", problem)

    # On the engine's thread.

    def _check_drain(self) -> Iterator[HealthCheckResult]:
        if self._drain.is_active:
            yield HealthCheckResult("instance", f"it is being drained ({self._drain.state})")

    def _check_transports(self) -> Iterator[HealthCheckResult]:
        for name, is_open in self._transports.open_from_start.items():
            yield HealthCheckResult(f"transport {name}", "" if is_open else "it is disabled")

    def _check_destinations(self, *, counts_all: bool) -> Iterator[HealthCheckResult]:
        replication = self._replication
        if replication is None:
            return
        now = replication.elapsed_us
        waiting_since_us = {lag.destination: lag.since_us for lag in replication.destination_lags()}
        awaited_destinations = replication.ack_tracker.awaited_destinations
        for name, destination in replication.destinations.items():
            if not counts_all and name not in awaited_destinations:
                continue
            waited_us = now - waiting_since_us.get(name, now)
            since_us = WallMicroseconds(replication.now_us - waited_us)
            title = f"destination {name}"
            if not destination.is_connected:
                yield _not_connected(title, destination, since_us)
            elif waited_us >= LAG_WARNING_SECONDS * MICROSECONDS_PER_SECOND:
                yield HealthCheckResult(title, "it is behind", moment_of_us(since_us))
            else:
                yield HealthCheckResult(title)


def _not_connected(
    title: str, destination: ReplicationDestination, since_us: WallMicroseconds
) -> HealthCheckResult:
    if destination.disconnected_at is None:
        return HealthCheckResult(title, "it has never been connected since this instance started")
    return HealthCheckResult(
        title, "it is not connected", moment_of_us(min(destination.disconnected_at, since_us))
    )


def _answer(request: HttpRequest, checks: list[HealthCheckResult]) -> HttpResponse:
    """Return all checks as JSON, or the failed ones as text."""
    failed = [check for check in checks if check.problem]
    status = _UNAVAILABLE if failed else _OK
    if request.segments[-1].endswith(".json"):
        content = {
            "status": "unavailable" if failed else "ok",
            "checks": [
                {"name": one.name, "status": one.problem or "ok", "since": one.problem_since}
                for one in checks
            ],
        }
        return json_response(content, status)
    lines = [
        f"{one.name}: {one.problem}{f', since {one.problem_since}' if one.problem_since else ''}"
        for one in failed
    ]
    text = "\n".join(lines or ["ok"]) + "\n"
    return uncached_response(HttpDocument(text.encode(errors="replace"), TEXT), status)
