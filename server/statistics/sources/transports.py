"""The transports of clients and other instances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.statistics.resources import TRANSPORTS
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from config_schema.spec import TransportSpec
    from server.app.wiring.transport_table import TransportTable
    from server.statistics.schema import StatisticValue
    from server.statistics.sources.clients import ClientsSource


class TransportsSource:
    """The transports. It has to follow the clients in a sample.

    Args:
        transports: those of the instance.
        clients: has summed up their counts.
    """

    resource = TRANSPORTS

    def __init__(self, transports: TransportTable, clients: ClientsSource) -> None:
        self._clients = clients
        self._transports = transports
        self._static_values: dict[TransportSpec, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        earlier, self._static_values = self._static_values, {}
        for listener in self._transports.listeners:
            spec = listener.spec
            static_values = earlier.get(spec) or _static_values_of(spec)
            self._static_values[spec] = static_values
            name = listener.spec.name
            totals = self._clients.totals_of(name)
            dynamic_values = (
                totals.bytes_in,
                totals.bytes_out,
                self._clients.connected_counts.get(name, 0),
                totals.sessions,
                totals.denied_reads,
                totals.denied_writes,
                int(listener.is_open),
                totals.messages_in,
                totals.messages_out,
            )
            yield StatisticsEntry(name, static_values, dynamic_values)


def _static_values_of(spec: TransportSpec) -> tuple[StatisticValue, ...]:
    options = {
        "InetAddr": spec.inet_addr,
        "FileName": spec.file_name,
        "Protocol": spec.protocol,
        "ReuseAddr": "true" if spec.reuse_addr else "",
    }
    text = ",".join(f"{name}={value}" for name, value in options.items() if value)
    return spec.message_type or "", spec.name, text, spec.type
