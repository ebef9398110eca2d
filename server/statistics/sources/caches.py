"""Memory that is kept for clients, and for readers of the log.

The names are those of the Monitoring Guide where there is a similar cache here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.resources import CACHES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.statistics.sources.clients import ClientsSource
    from server.storage.journal import Journal

_CLIENTS: Final = "client cache"
_OUTPUT_BUFFER: Final = "byte out buffer cache"
_JOURNALS: Final = "journal cache"
_ABOUT: Final = {
    _CLIENTS: "connections, with the subscriptions and queries of their clients",
    _OUTPUT_BUFFER: "bytes that clients have not read",
    _JOURNALS: "journal files that have been decompressed",
}


class CachesSource:
    """The caches. It has to follow the clients in a sample.

    Args:
        engine: has the connections.
        clients: has summed up the memory of clients.
        transports: have the numbers of bytes that clients have not read.
        journal: the transaction log; None if there is none.
    """

    resource = CACHES

    def __init__(
        self,
        engine: Engine,
        clients: ClientsSource,
        transports: TransportTable,
        journal: Journal | None,
    ) -> None:
        self._engine = engine
        self._clients = clients
        self._transports = transports
        self._journal = journal
        self._static_values = {name: (about,) for name, about in _ABOUT.items()}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        engine, pools = self._engine, self._transports.pools
        connected, memory_held = len(engine.sessions), self._clients.memory_bytes
        created = connected + engine.sessions_ending + engine.sessions_ended
        yield self._entry(
            _CLIENTS, created, memory_held, connected, evictions=engine.sessions_ended
        )
        memory = sum(pool.memory_used for pool in pools)
        waiting = sum(len(pool.backlogs) for pool in pools)
        buffered = sum(pool.buffered_bytes_total for pool in pools)
        yield self._entry(_OUTPUT_BUFFER, 0, memory, waiting, overflow=buffered)
        if self._journal is not None:
            cache = self._journal.cache
            yield self._entry(
                _JOURNALS,
                cache.misses,
                cache.size,
                cache.file_count,
                fetches=cache.requests,
                evictions=cache.evictions,
            )

    def _entry(
        self,
        name: str,
        created: int,
        size: int,
        entries: int,
        *,
        fetches: int = 0,
        evictions: int = 0,
        overflow: int = 0,
    ) -> StatisticsEntry:
        """Return an entry; each creation counts as a request that the cache could not answer."""
        efficiency = round((fetches - created) / fetches, 6) if fetches else 0.0
        dynamic_values = created, size, efficiency, entries, evictions, fetches, overflow
        return StatisticsEntry(name, self._static_values[name], dynamic_values)
