"""Makes the collector and the thread of the instance's statistics, and lists their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.topology import describe
from server.replication.links.mesh_reports import report_of
from server.statistics.collector import StatisticsCollector
from server.statistics.histograms import distributions
from server.statistics.host import host_sources
from server.statistics.latencies import LatenciesSource
from server.statistics.process import process_sources
from server.statistics.resources import WRITE_LATENCY, WRITE_SIZE
from server.statistics.sources.caches import CachesSource
from server.statistics.sources.certificates import CertificatesSource
from server.statistics.sources.clients import ClientsSource
from server.statistics.sources.derived import ConflatedTopicsSource, ViewsSource
from server.statistics.sources.instance import InstanceSource, MessageTypesSource, TuningSource
from server.statistics.sources.log_targets import logging_sources
from server.statistics.sources.mesh import MeshInstancesSource, MeshLinksSource
from server.statistics.sources.processors import ApiSource, ProcessorsSource, QueriesSource
from server.statistics.sources.queues import QueuesSource
from server.statistics.sources.replication import ReplicationSource
from server.statistics.sources.sow import SowSource
from server.statistics.sources.sql import SqlErrorsSource, SqlSource
from server.statistics.sources.subscriptions import PaginationsSource, SubscriptionsSource
from server.statistics.sources.transaction_log import (
    HistogramSource,
    JournalsSource,
    TransactionLogSource,
)
from server.statistics.sources.transports import TransportsSource
from server.statistics.statistics_thread import StatisticsThread

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.engine.maintenance.certificate_expiry import CertificateCheck
    from server.log.event_log import EventLog
    from server.replication.links.mesh_reports import MeshReporter
    from server.replication.links.replication_state import ReplicationState
    from server.statistics.sample import StatisticsSource

_NANOSECONDS: Final = 1_000_000_000
_MILLISECOND: Final = 1_000_000


class StatisticsService:
    """The collector and the thread of an instance's statistics.

    Args:
        certificates: the certificates in use.
        admin: the Admin section, with the file and the sampling interval.
        engine: the instance's sessions and topics.
        log: the instance's log.
        indexed: see `StatisticsThread`.

    Attributes:
        statistics_thread: stores the samples, on a thread of its own.
        collector: takes samples.
    """

    def __init__(
        self,
        certificates: CertificateCheck,
        admin: AdminSpec,
        engine: Engine,
        log: EventLog,
        *,
        indexed: bool = False,
    ) -> None:
        self.statistics_thread: Final = StatisticsThread(
            admin.file_name,
            admin.interval // _MILLISECOND,
            log,
            sources=[
                *host_sources(),
                *process_sources(),
                *logging_sources(log),
                CertificatesSource(certificates),
            ],
            indexed=indexed,
        )
        self.collector: Final = StatisticsCollector(
            admin.interval / _NANOSECONDS,
            self.statistics_thread.add_sample,
            engine.scheduler,
            engine.clock,
            engine.scheduler.elapsed,
            log,
        )

    def start(self, sources: list[StatisticsSource]) -> None:
        """Take the first sample, and one per Interval from then on.

        Args:
            sources: the sources of statistics, see `sources_of`.
        """
        self.statistics_thread.start()
        self.collector.start(sources)

    def set_interval(self, interval_ns: int) -> None:
        """Take one sample per interval from now on."""
        self.collector.set_interval(interval_ns / _NANOSECONDS)
        self.statistics_thread.interval_ms = interval_ns // _MILLISECOND

    def close(self) -> None:
        """Stop sampling; samples already taken are stored."""
        self.collector.close()
        self.statistics_thread.close()


def sources_of(
    spec: InstanceSpec,
    engine: Engine,
    transports: TransportTable,
    replication: ReplicationState | None,
    mesh_reporter: MeshReporter | None,
    collector: StatisticsCollector,
) -> list[StatisticsSource]:
    """Return the sources of statistics of an instance after the recovery of its topics.

    Args:
        spec: its description.
        engine: its sessions and topics.
        transports: its transports.
        replication: its replication; None if it does not replicate.
        mesh_reporter: the reports received from other instances; None likewise.
        collector: takes the samples.
    """
    log, topics = engine.transaction_log, engine.topics
    journal = None if log is None else log.journal
    archive = (
        None if spec.transaction_log is None else spec.transaction_log.journal_archive_directory
    )
    clients, subscriptions = ClientsSource(engine), SubscriptionsSource(engine)
    return [
        InstanceSource(spec),
        clients,
        ApiSource(engine),
        QueriesSource(clients),
        SqlSource(engine),
        SqlErrorsSource(engine),
        LatenciesSource(distributions(engine)),
        ProcessorsSource(engine, clients, replication, lambda: collector.lag_s),
        subscriptions,
        PaginationsSource(subscriptions),
        CachesSource(engine, clients, transports, journal),
        MessageTypesSource(engine.settings.message_type_modules, spec),
        SowSource(engine.sow_registry, topics, engine.scheduler.elapsed),
        ConflatedTopicsSource(engine.sow_registry),
        ViewsSource(engine.sow_registry),
        QueuesSource(topics, engine.clock),
        ReplicationSource(replication),
        TransactionLogSource(journal),
        JournalsSource(
            journal,
            None if archive is None else Path(archive),
            tuple if log is None else log.holders,
        ),
        HistogramSource(WRITE_LATENCY, None if journal is None else journal.write_latency),
        HistogramSource(WRITE_SIZE, None if journal is None else journal.write_sizes),
        TransportsSource(transports, clients),
        TuningSource(spec),
        MeshInstancesSource(report_of(describe(spec), [], []), mesh_reporter),
        MeshLinksSource(mesh_reporter),
    ]
