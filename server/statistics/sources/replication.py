"""The destinations that this instance replicates to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.statistics.resources import REPLICATION
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import moment_of_us
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.statistics.schema import StatisticValue


class ReplicationSource:
    """The destinations.

    Args:
        replication: has the destinations; None for an instance without replication.
    """

    resource = REPLICATION

    def __init__(self, replication: ReplicationState | None) -> None:
        self._replication = replication
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        replication = self._replication
        if replication is None:
            return
        now = replication.elapsed_us
        waiting = {lag.destination: lag.since_us for lag in replication.destination_lags()}
        for name, destination in replication.destinations.items():
            behind = max(now - waiting.get(name, now), 0) // MICROSECONDS_PER_SECOND
            is_sync = name in replication.ack_tracker.awaited_destinations
            yield StatisticsEntry(
                name,
                self._fixed_of(name, destination),
                _dynamic_values(destination, behind, is_sync=is_sync),
            )

    def _fixed_of(
        self, name: str, destination: ReplicationDestination
    ) -> tuple[StatisticValue, ...]:
        """Return the values that stay fixed until more is known about the destination."""
        spec = destination.spec
        passes_on = "1" if spec.pass_through else "0"
        values = (
            destination.user,
            destination.direction.client,
            "destination",
            spec.name,
            passes_on,
        )
        if self._static_values.get(name) != values:
            self._static_values[name] = values
        return self._static_values[name]


def _dynamic_values(
    destination: ReplicationDestination, behind: int, *, is_sync: bool
) -> tuple[StatisticValue, ...]:
    return (
        destination.bytes_out,
        moment_of_us(destination.connected_at),
        destination.admin_location.address,
        destination.direction.group,
        destination.direction.peer,
        destination.disconnects,
        moment_of_us(destination.disconnected_at),
        int(destination.is_connected),
        destination.sender.sent_entries,
        "sync" if is_sync else "async",
        behind,
    )
