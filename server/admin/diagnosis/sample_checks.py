"""Checks of the state of an instance: its health checks, its last sample, and its log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from server.admin.diagnosis.findings import CheckFinding, CheckVerdict, checked, limit_findings
from server.admin.diagnosis.humanize import number, size, span
from server.log.catalogue import summary_of
from server.log.levels import Level
from server.statistics.histograms import TASK_DURATION
from server.statistics.resources import CLIENTS, LATENCIES, QUEUES
from server.statistics.sources.texts import moment
from server.statistics.timestamps import to_unix

if TYPE_CHECKING:
    from server.admin.health import HealthCheckResult
    from server.log.targets.base import LogLine
    from server.statistics.sample import StatisticsSnapshot
    from server.statistics.schema import Resource, StatisticValue

HEALTH: Final = "health"
LOAD: Final = "load"
LOG: Final = "log"

_LONG_TASK_US: Final = 100_000.0
"""Microseconds (99th percentile) of one piece of work, during which all other clients wait."""

_SLOW_CLIENT_S: Final = 1.0
_STUCK_CLIENT_S: Final = 60.0
_STUCK_QUEUE_S: Final = 60.0
_HOUR_NS: Final = 3_600_000_000_000
_MESSAGE_ID: Final = re.compile(rb" ([0-9A-F]{2}-[0-9A-F]{4}) ")

_HEALTH_LINKS: Final = {
    "engine": ("overview", "the-engine-is-busy"),
    "statistics": ("log", "errors-in-the-log"),
    "instance": ("administration", "draining"),
    "transport": ("administration", "closed-transports"),
    "destination": ("replication", "late-destinations"),
}
"""The page and the section of the runbook, by the first word of a check's name."""


def health_findings(checks: Iterable[HealthCheckResult]) -> Iterator[CheckFinding]:
    """Return the results of health checks as findings."""
    for check in checks:
        page, runbook = _HEALTH_LINKS[check.name.partition(" ")[0]]
        yield checked(
            CheckFinding(
                HEALTH,
                check.name,
                CheckVerdict.ERROR if check.problem else CheckVerdict.OK,
                check.problem or "ok",
                "clients are kept away, or publishers wait for it",
                "docs/monitoring.md has what each check means",
                check.problem_since,
                page,
                runbook,
                "/readyz",
            )
        )


def sample_findings(snapshot: StatisticsSnapshot) -> Iterator[CheckFinding]:
    """Check the last sample: the engine, clients and queues."""
    now = to_unix(snapshot.timestamp)
    yield from _engine_findings(snapshot)
    yield from _client_findings(snapshot, now)
    yield from _queue_findings(snapshot, now)


def _engine_findings(snapshot: StatisticsSnapshot) -> Iterator[CheckFinding]:
    for identity, percentile in _rows(snapshot, LATENCIES, "percentile_99"):
        if identity == TASK_DURATION:
            yield checked(
                CheckFinding(
                    LOAD,
                    "pieces of work on the engine's thread",
                    CheckVerdict.WARNING if float(percentile) > _LONG_TASK_US else CheckVerdict.OK,
                    f"99 of 100 take up to {float(percentile) / 1000:.1f} ms",
                    "all clients wait while one operation runs",
                    "the log names the slow operations; /amps/instance/clients/ID/explain does"
                    " per client",
                    page="log?find=01-0010",
                    runbook="the-engine-is-busy",
                    path=f"/amps/{LATENCIES.path}",
                )
            )


def _client_findings(snapshot: StatisticsSnapshot, now: float) -> Iterator[CheckFinding]:
    rows = [*_rows(snapshot, CLIENTS, "queue_max_latency", "client_name", "queued_bytes_out")]
    slow = [row for row in rows if float(row[1]) > _SLOW_CLIENT_S]
    slow.sort(key=itemgetter(1), reverse=True)
    yield CheckFinding(
        LOAD,
        "clients",
        CheckVerdict.OK,
        f"{len(rows):,} connected, {len(slow):,} do not read their waiting messages",
        path=f"/amps/{CLIENTS.path}",
    )
    findings = [
        CheckFinding(
            LOAD,
            f"client {name}",
            CheckVerdict.ERROR if float(seconds) > _STUCK_CLIENT_S else CheckVerdict.WARNING,
            f"{size(float(waiting))} wait for it, the oldest for {span(float(seconds))}",
            "messages wait in memory, then on disk, then the client is disconnected",
            "amps/instance/clients/ID/explain says why a client is slow",
            moment(now - float(seconds)),
            f"clients?sort=queue_max_latency&order=desc&id={quote(str(identity))}",
            "slow-clients",
            f"/amps/{CLIENTS.path}",
        )
        for identity, seconds, name, waiting in slow
    ]
    yield from limit_findings(findings, "clients")


def _queue_findings(snapshot: StatisticsSnapshot, now: float) -> Iterator[CheckFinding]:
    rows = [*_rows(snapshot, QUEUES, "seconds_behind", "queue_depth", "backlog", "consumers")]
    stuck = [row for row in rows if float(row[1]) > _STUCK_QUEUE_S]
    stuck.sort(key=itemgetter(1), reverse=True)
    yield CheckFinding(
        LOAD,
        "queues",
        CheckVerdict.OK,
        f"{len(rows):,}, {len(stuck):,} with a message that is older than {_STUCK_QUEUE_S:.0f} s",
        path=f"/amps/{QUEUES.path}",
    )
    findings = [
        CheckFinding(
            LOAD,
            f"queue {identity}",
            CheckVerdict.WARNING,
            f"{number(int(depth), 'message')}, {leased} leased, the oldest for"
            f" {span(float(seconds))}, {number(int(consumers), 'consumer')}",
            "consumers do not keep up" if consumers else "it has no consumers",
            "look at /amps/instance/queues",
            moment(now - float(seconds)),
            f"queues?sort=seconds_behind&order=desc&id={quote(str(identity))}",
            "stuck-queues",
            f"/amps/{QUEUES.path}",
        )
        for identity, seconds, depth, leased, consumers in stuck
    ]
    yield from limit_findings(findings, "queues")


def _rows(
    snapshot: StatisticsSnapshot, resource: Resource, *names: str
) -> Iterator[tuple[StatisticValue, ...]]:
    """Yield the id of each entry, and the values of some fields."""
    fields = [field.name for field in resource.fields]
    indexes = [fields.index(name) for name in names]
    for identity, values in snapshot.entries.get(resource.path, {}).items():
        yield (identity, *(values[index] for index in indexes))


def log_findings(errors: Iterable[LogLine], now_ns: int) -> list[CheckFinding]:
    """Return the errors of the last hour, by message, the most severe first.

    Args:
        errors: the last entries of the level `error` and above, in their order.
        now_ns: the time, in nanoseconds since the epoch.
    """
    counts: Counter[str] = Counter()
    last: dict[str, LogLine] = {}
    for line in errors:
        if line.nanoseconds > now_ns - _HOUR_NS:
            found = _MESSAGE_ID.search(line.text)
            identity = "" if found is None else found[1].decode()
            counts[identity] += 1
            last[identity] = line
    ids = sorted(counts, key=lambda identity: (-last[identity].level, -counts[identity]))
    findings = [
        CheckFinding(
            LOG,
            f"message {identity}",
            CheckVerdict.ERROR if last[identity].level >= Level.CRITICAL else CheckVerdict.WARNING,
            f"{number(counts[identity], 'time')} in the last hour, last at"
            f" {moment(last[identity].nanoseconds / 1e9)}",
            summary_of(identity),
            f"ampserr {identity} says what to do",
            page=f"log?find={identity}",
            runbook="errors-in-the-log",
            path="/console/log",
        )
        for identity in ids
    ]
    return limit_findings(findings, "messages")
