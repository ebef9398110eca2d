"""All known instances, and the replication links between them.

The report of another instance is shown as it was received; an instance that is out of reach is
shown with its last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.replication.core.mesh import MAX_INSTANCES
from server.replication.links.admin_addresses import (
    AdminLocation,
    best_admin_location,
    parse_admin_location,
)
from server.replication.links.mesh_reports import NOT_CONNECTED
from server.statistics.resources import MESH_INSTANCES, MESH_LINKS
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.replication.core.mesh import LinkReport, MeshReport, Neighbour
    from server.replication.links.mesh_reports import MeshReporter
    from server.statistics.schema import StatisticValue

_MICROSECONDS: Final = 1_000_000
_MAX_LINKS: Final = 4_096


class _MeshReport(NamedTuple):
    """The report of an instance.

    Attributes:
        report: its last report.
        seconds: the age of the report.
        is_reachable: whether it can be reached.
    """

    report: MeshReport
    seconds: int
    is_reachable: bool


class MeshInstancesSource:
    """The instances.

    Args:
        own_report: the report of this instance.
        mesh_reporter: the reports of others; None for an instance without replication.
    """

    resource = MESH_INSTANCES

    def __init__(self, own_report: MeshReport, mesh_reporter: MeshReporter | None) -> None:
        self._own_report = own_report
        self._mesh_reporter = mesh_reporter

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        if self._mesh_reporter is None:
            known_here = _MeshReport(self._own_report, 0, is_reachable=True)
            yield _instance(self._own_report.name, known_here, (), is_this=True)
            return
        mesh = self._mesh_reporter.mesh
        known, seen, reachable = (
            _known(self._mesh_reporter),
            mesh.neighbours_by_name(),
            mesh.reachable_instances(),
        )
        names = [*known, *_others(known, seen)]
        for name in names[: MAX_INSTANCES + 1]:
            is_this = name == self._own_report.name
            by_others = seen.get(name, ())
            if name in known:
                yield _instance(name, known[name], by_others, is_this=is_this)
            else:
                yield _unheard(name, by_others, is_reachable=name in reachable)


class MeshLinksSource:
    """The replication links between instances.

    Args:
        mesh_reporter: the reports of others; None for an instance without replication.
    """

    resource = MESH_LINKS

    def __init__(self, mesh_reporter: MeshReporter | None) -> None:
        self._mesh_reporter = mesh_reporter
        self._static_values: dict[tuple[str, str], tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        if self._mesh_reporter is None:
            return
        known = _known(self._mesh_reporter)
        links = [
            (name, one, link)
            for name, one in known.items()
            for link in {link.destination: link for link in one.report.links}.values()
        ]
        earlier, self._static_values = self._static_values, {}
        for name, one, link in links[:_MAX_LINKS]:
            key = name, link.destination
            fixed = self._static_values[key] = earlier.get(key, (link.destination, name))
            yield StatisticsEntry(_link_id(name, link.destination), fixed, _moving(one, link))


def _known(reporting: MeshReporter) -> dict[str, _MeshReport]:
    """Return the reports of instances, by their names; this one first."""
    own, now_us, reachable = (
        reporting.make_report(),
        reporting.now_us,
        reporting.mesh.reachable_instances(),
    )
    found = {own.name: _MeshReport(own, 0, is_reachable=True)}
    for name, one in sorted(reporting.mesh.peer_reports.items()):
        seconds = max(now_us - one.made_at_us, 0) // _MICROSECONDS
        found[name] = _MeshReport(one.report, seconds, name in reachable)
    return found


def _others(known: Mapping[str, _MeshReport], seen: Mapping[str, object]) -> list[str]:
    """Return the names of present or former instances that have not reported."""
    named = {link.peer for one in known.values() for link in one.report.links if link.peer}
    return sorted((named | set(seen)) - set(known))


def _instance(
    name: str, known: _MeshReport, seen: Sequence[Neighbour], *, is_this: bool
) -> StatisticsEntry:
    """Return an entry.

    Args:
        name: its name.
        known: its report.
        seen: the reports of its present or former neighbours about it.
        is_this: whether it is this one.
    """
    report = known.report
    admin = parse_admin_location(report.admin, is_secure=report.is_secure)
    address, scheme = admin if admin.address else _seen_at(seen)
    moving = (address, scheme, report.group, 1, int(known.is_reachable), int(is_this))
    return StatisticsEntry(name, (name,), (*moving, known.seconds))


def _unheard(name: str, seen: Sequence[Neighbour], *, is_reachable: bool) -> StatisticsEntry:
    """Return an entry for an instance that has not reported."""
    address, scheme = _seen_at(seen)
    group = seen[0].group if seen else ""
    return StatisticsEntry(name, (name,), (address, scheme, group, 0, int(is_reachable), 0, 0))


def _seen_at(seen: Sequence[Neighbour]) -> AdminLocation:
    """Return the admin interface of an instance, as its neighbours know it."""
    return best_admin_location(
        parse_admin_location(one.admin, is_secure=one.is_secure) for one in seen
    )


def _moving(one: _MeshReport, link: LinkReport) -> tuple[StatisticValue, ...]:
    return (
        link.bytes_behind,
        link.group,
        link.peer,
        int(link.state != NOT_CONNECTED),
        int(one.is_reachable),
        link.messages_behind,
        link.messages_out,
        "sync" if link.is_waited_for else "async",
        one.seconds,
        link.seconds_behind,
        moment(link.since / _MICROSECONDS if link.since else None),
        link.state,
        link.sync_type,
        link.waits_for,
    )


def _link_id(source: str, destination: str) -> str:
    """Return a link's unique id, for any characters in the names."""
    return f"{source.replace('%', '%25').replace('!', '%21')}!{destination}"
