"""Starts the replication of an instance: its state, links, monitors and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.app.wiring.provision_replication import provision_replication
from server.replication.anti_entropy.coordinator import AntiEntropyCoordinator
from server.replication.anti_entropy.republisher import RecordRepublisher
from server.replication.apply.republish import RepairPublisher
from server.replication.links.lag_monitor import ReplicationLagMonitor
from server.replication.links.mesh_reports import MeshReporter
from server.replication.links.registry import LinkRegistry
from server.replication.repair.body_repair import PeerBodyRepair

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from actions.services import ActionServices
    from config_schema.spec import InstanceSpec
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.queues.topic.peers import QueuePeers
    from server.topics.transaction_log import TransactionLog


def start_replication(
    spec: InstanceSpec,
    engine: Engine,
    log: TransactionLog,
    queue_peers: QueuePeers,
    transports: TransportTable,
    services: ActionServices,
    opened: AsyncExitStack,
    check: Callable[[], None],
) -> tuple[MeshReporter, ReplicationLagMonitor] | None:
    """Start replication, if it is configured; links are made with the transports.

    Args:
        spec: the instance.
        engine: its engine.
        log: the transaction log, which has been recovered.
        queue_peers: the instances that share queues.
        transports: serve replication from then on.
        services: get the replication.
        opened: gets the callbacks that end it.
        check: called now and then; an exception that it raises ends the start.

    Returns:
        The reports about the mesh, and the monitor of lags; None without replication.

    Raises:
        ProvisionError: the log cannot be read.
    """
    provided = provision_replication(spec, engine, log, check)
    if provided is None:
        return None
    replication, state_store = provided
    opened.callback(state_store.close)
    services.replication = replication
    links = LinkRegistry(replication, engine.scheduler, engine.clock, engine.log)
    links.set_default_handler(queue_peers.dispatch_message)
    queue_peers.connect(links, replication.dedup_window)
    transports.set_links(links)
    services.link_registry = links
    mesh_reporter = MeshReporter(replication, links, engine.clock)
    opened.callback(mesh_reporter.close)
    lag_monitor = ReplicationLagMonitor(replication, engine.clock, engine.log)
    opened.callback(lag_monitor.close)
    repairs = RecordRepublisher(RepairPublisher(engine.topics, engine.clock), engine.log)
    comparing = AntiEntropyCoordinator(
        replication,
        engine.sow_registry,
        repairs,
        links,
        engine.scheduler,
        engine.clock,
        engine.log,
    )
    services.anti_entropy = comparing
    opened.callback(comparing.close)
    opened.callback(
        PeerBodyRepair(
            replication.instance,
            log,
            links,
            replication.dedup_window,
            engine.clock,
            engine.log,
            replication.retry_damaged,
        ).close
    )
    return mesh_reporter, lag_monitor
