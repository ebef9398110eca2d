"""The parts of an instance that a reload of the configuration changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import asyncio

    from actions.runner import ActionRunner
    from actions.services import ActionServices
    from server.admin.operations.operation import OperationGroup
    from server.admin.pages import ConfigurationText
    from server.app.wiring.drain import InstanceDrain
    from server.app.wiring.open_topics import OpenTopics
    from server.app.wiring.provision_queues import InstanceQueues
    from server.app.wiring.provision_statistics import StatisticsService
    from server.app.wiring.source_files import SourceFileWatch
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.engine.maintenance.certificate_expiry import CertificateCheck


@dataclass(frozen=True, slots=True)
class ReloadServices:
    """The parts of an instance that a reload changes.

    Attributes:
        engine: the engine.
        topics: the SOW topics.
        queues: the queues; None without a transaction log.
        services: the services of actions.
        transports: the transports.
        certificate_check: checks the certificates in use.
        statistics: the statistics; None without an Admin section.
        actions: the actions.
        drain: drains the instance.
        shown: the text of the configuration that the admin interface shows.
        source_files: watches the files of the configuration.
        can_reload: set when all parts are open; a signal may request a reload before.
    """

    engine: Engine
    topics: OpenTopics
    queues: InstanceQueues | None
    services: ActionServices
    transports: TransportTable
    certificate_check: CertificateCheck
    statistics: StatisticsService | None
    actions: ActionRunner
    drain: InstanceDrain
    shown: ConfigurationText
    source_files: SourceFileWatch
    can_reload: asyncio.Event


@dataclass(frozen=True, slots=True)
class ReloadOperations:
    """Reloads of the configuration, for administrators and for actions.

    Attributes:
        group: the operations of administrators.
        run_step: applies all differences of the file, or none; raises `StepError` if that is
            refused or fails.
    """

    group: OperationGroup
    run_step: Callable[[], Awaitable[None]]


MakeReload: TypeAlias = Callable[[ReloadServices], ReloadOperations]
"""Makes the operations that reload the configuration of an instance with these parts."""
