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
from server.statistics.sources.texts import moment_of_us
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.replication.core.mesh import LinkReport, MeshReport, Neighbour
    from server.replication.links.mesh_reports import MeshReporter
    from server.statistics.schema import StatisticValue

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
            own_entry = _MeshReport(self._own_report, 0, is_reachable=True)
            yield _instance(self._own_report.name, own_entry, (), is_this=True)
            return
        mesh = self._mesh_reporter.mesh
        reports, neighbours, reachable = (
            _known_reports(self._mesh_reporter),
            mesh.neighbours_by_name(),
            mesh.reachable_instances(),
        )
        names = [*reports, *_silent_names(reports, neighbours)]
        for name in names[: MAX_INSTANCES + 1]:
            is_this = name == self._own_report.name
            by_others = neighbours.get(name, ())
            if name in reports:
                yield _instance(name, reports[name], by_others, is_this=is_this)
            else:
                yield _silent_instance(name, by_others, is_reachable=name in reachable)


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
        reports = _known_reports(self._mesh_reporter)
        links = [
            (name, report, link)
            for name, report in reports.items()
            for link in {link.destination: link for link in report.report.links}.values()
        ]
        earlier, self._static_values = self._static_values, {}
        for name, report, link in links[:_MAX_LINKS]:
            key = name, link.destination
            static_values = self._static_values[key] = earlier.get(key, (link.destination, name))
            yield StatisticsEntry(
                _link_id(name, link.destination), static_values, _dynamic_values(report, link)
            )


def _known_reports(mesh_reporter: MeshReporter) -> dict[str, _MeshReport]:
    """Return the reports of instances, by their names; this one first."""
    own_report, now_us, reachable = (
        mesh_reporter.make_report(),
        mesh_reporter.now_us,
        mesh_reporter.mesh.reachable_instances(),
    )
    reports = {own_report.name: _MeshReport(own_report, 0, is_reachable=True)}
    for name, peer_report in sorted(mesh_reporter.mesh.peer_reports.items()):
        seconds = max(now_us - peer_report.made_at_us, 0) // MICROSECONDS_PER_SECOND
        reports[name] = _MeshReport(peer_report.report, seconds, name in reachable)
    return reports


def _silent_names(
    reports: Mapping[str, _MeshReport], neighbours: Mapping[str, object]
) -> list[str]:
    """Return the names of present or former instances that have not reported."""
    named = {link.peer for report in reports.values() for link in report.report.links if link.peer}
    return sorted((named | set(neighbours)) - set(reports))


def _instance(
    name: str, mesh_report: _MeshReport, neighbours: Sequence[Neighbour], *, is_this: bool
) -> StatisticsEntry:
    """Return an entry.

    Args:
        name: its name.
        mesh_report: its report.
        neighbours: the reports of its present or former neighbours about it.
        is_this: whether it is this one.
    """
    report = mesh_report.report
    admin = parse_admin_location(report.admin, is_secure=report.is_secure)
    address, scheme = admin if admin.address else _reported_location(neighbours)
    dynamic_values = (address, scheme, report.group, 1, int(mesh_report.is_reachable), int(is_this))
    return StatisticsEntry(name, (name,), (*dynamic_values, mesh_report.seconds))


def _silent_instance(
    name: str, neighbours: Sequence[Neighbour], *, is_reachable: bool
) -> StatisticsEntry:
    """Return an entry for an instance that has not reported."""
    address, scheme = _reported_location(neighbours)
    group = neighbours[0].group if neighbours else ""
    return StatisticsEntry(name, (name,), (address, scheme, group, 0, int(is_reachable), 0, 0))


def _reported_location(neighbours: Sequence[Neighbour]) -> AdminLocation:
    """Return the admin interface of an instance, as its neighbours report it."""
    return best_admin_location(
        parse_admin_location(neighbour.admin, is_secure=neighbour.is_secure)
        for neighbour in neighbours
    )


def _dynamic_values(report: _MeshReport, link: LinkReport) -> tuple[StatisticValue, ...]:
    return (
        link.bytes_behind,
        link.group,
        link.peer,
        int(link.state != NOT_CONNECTED),
        int(report.is_reachable),
        link.messages_behind,
        link.messages_out,
        "sync" if link.is_waited_for else "async",
        report.seconds,
        link.seconds_behind,
        moment_of_us(link.since or None),
        link.state,
        link.sync_type,
        link.waits_for,
    )


def _link_id(source: str, destination: str) -> str:
    """Return a link's unique id, for any characters in the names."""
    return f"{source.replace('%', '%25').replace('!', '%21')}!{destination}"
