"""The work of the instance, by kind.

There is one thread for all of it, and no processors that wait for each other. The Monitoring
Guide's counts per processor are divided by the origin of messages:

    received   external: from clients; queue: those that enter queues, counted there once more;
               replication: from other instances; internal: those that the server itself publishes
    found      messages to clients, or other instances, by their origin

Bytes are those of frames, but for replication, where they are those of bodies when received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from server.statistics.resources import API, PROCESSORS, QUERIES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.replication.links.replication_state import ReplicationState
    from server.statistics.sources.clients import ClientsSource

_ALL_PROCESSORS: Final = ("all", "everything")
_KINDS: Final = {
    "bookmark": "messages from the transaction log",
    "detached": "messages that are conflated, aggregated or cut into pages before they are sent",
    "external": "messages from and to clients that publish and subscribe",
    "internal": "messages that the server publishes itself",
    "queue": "messages to and from queues",
    "replication": "messages from and to other instances",
    "sow": "results of queries",
}
_MILLISECONDS: Final = 1_000


class _ProcessorFigures(NamedTuple):
    """The figures of one kind.

    Attributes:
        denied_reads: reads refused.
        denied_writes: writes refused.
        found: messages delivered.
        found_bytes: bytes of these.
        received: messages received.
        received_bytes: bytes of these.
        throttled: reads of connections that had to wait for a later time slice.
    """

    denied_reads: int = 0
    denied_writes: int = 0
    found: int = 0
    found_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    throttled: int = 0


class ProcessorsSource:
    """The processors. It has to follow the clients in a sample.

    Args:
        engine: has most counters.
        clients: has summed up those of clients.
        replication: has those of replication; None for an instance without replication.
        lag: seconds for which the engine's thread was busy with other work when the sample was
            due.
    """

    resource = PROCESSORS

    def __init__(
        self,
        engine: Engine,
        clients: ClientsSource,
        replication: ReplicationState | None,
        lag: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._clients = clients
        self._replication = replication
        self._lag = lag
        self._static_values = {name: (about,) for name, about in (_ALL_PROCESSORS, *_KINDS.items())}
        self._previous_queued = self._count_queued()  # counts of the recovery

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        last_active = round(self._lag() * _MILLISECONDS)
        figures = self._collect_figures()
        summed = _ProcessorFigures(*map(sum, zip(*figures.values(), strict=True)))
        for name, processor_figures in {_ALL_PROCESSORS[0]: summed, **figures}.items():
            dynamic_values = (
                processor_figures.denied_reads,
                processor_figures.denied_writes,
                last_active,
                *processor_figures[2:],
            )
            yield StatisticsEntry(name, self._static_values[name], dynamic_values)

    def _collect_figures(self) -> dict[str, _ProcessorFigures]:
        engine, clients, replication = self._engine, self._clients.all_totals, self._replication
        traffic, inside = engine.outboxes.traffic, engine.internal_publishes
        apart = (traffic.answers, traffic.bookmark, traffic.detached, traffic.queue, traffic.sow)
        queued, queued_bytes = (
            now - before
            for now, before in zip(self._count_queued(), self._previous_queued, strict=True)
        )
        sent = sent_bytes = taken = taken_bytes = 0
        if replication is not None:
            destinations, removed = replication.destinations.values(), replication.removed_traffic
            sent = removed.messages + sum(one.sender.sent_entries for one in destinations)
            sent_bytes = removed.bytes + sum(one.bytes_out for one in destinations)
            taken, taken_bytes = (
                replication.received_traffic.messages,
                replication.received_traffic.bytes,
            )
        return {
            "bookmark": _ProcessorFigures(
                found=traffic.bookmark.messages, found_bytes=traffic.bookmark.bytes
            ),
            "detached": _ProcessorFigures(
                found=traffic.detached.messages, found_bytes=traffic.detached.bytes
            ),
            "external": _ProcessorFigures(
                clients.denied_reads,
                clients.denied_writes,
                max(clients.messages_out - sum(destination.messages for destination in apart), 0),
                max(clients.bytes_out - sum(destination.bytes for destination in apart), 0),
                clients.messages_in,
                clients.bytes_in,
                engine.scheduler.postponed_reads,
            ),
            "internal": _ProcessorFigures(
                found=traffic.internal.messages,
                found_bytes=traffic.internal.bytes,
                received=inside.messages,
                received_bytes=inside.bytes,
            ),
            "queue": _ProcessorFigures(
                found=traffic.queue.messages,
                found_bytes=traffic.queue.bytes,
                received=queued,
                received_bytes=queued_bytes,
            ),
            "replication": _ProcessorFigures(
                found=sent, found_bytes=sent_bytes, received=taken, received_bytes=taken_bytes
            ),
            "sow": _ProcessorFigures(found=traffic.sow.messages, found_bytes=traffic.sow.bytes),
        }

    def _count_queued(self) -> tuple[int, int]:
        """Return the number of messages that have entered queues, and their bytes."""
        queues = list(self._engine.topics.queues or ())
        return (
            sum(queue.core.counters.enqueued for queue in queues),
            sum(queue.bytes_received for queue in queues),
        )


class QueriesSource:
    """The queries under way. It has to follow the clients in a sample.

    Args:
        clients: has counted them.
    """

    resource = QUERIES

    def __init__(self, clients: ClientsSource) -> None:
        self._clients = clients

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        yield StatisticsEntry("", (), (self._clients.query_count,))


class ApiSource:
    """The tasks that wait for the engine's thread.

    Args:
        engine: has the queue.
    """

    resource = API

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        yield StatisticsEntry("", (), (self._engine.scheduler.queue_length,))
