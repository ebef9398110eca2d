"""Makes what takes the instance's statistics, from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.statistics.sources.clients import ClientsSource
from server.statistics.sources.instance import InstanceSource, LifetimesSource, TuningSource
from server.statistics.sources.transports import TransportsSource

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.core.engine import Engine
    from server.statistics.sample import Source
    from server.transports.table import TransportTable


def sources_of(
    spec: InstanceSpec, engine: Engine, transports: TransportTable, config_path: str
) -> list[Source]:
    """What there is to be known of an instance.

    Args:
        spec: its description.
        engine: its sessions and topics.
        transports: its transports.
        config_path: the file that the description was read from.
    """
    return [
        InstanceSource(spec, config_path),
        ClientsSource(engine),
        LifetimesSource(engine.clock),
        TransportsSource(transports),
        TuningSource(spec),
    ]
