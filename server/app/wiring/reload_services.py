"""The parts of an instance that a reload of the configuration changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from actions.runner import ActionRunner
    from server.admin.operations.operation import OperationGroup
    from server.admin.pages import ConfigurationText
    from server.app.wiring.drain import InstanceDrain
    from server.app.wiring.provision_statistics import StatisticsService
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.engine.maintenance.certificate_expiry import CertificateCheck


@dataclass(frozen=True, slots=True)
class ReloadServices:
    """The parts of an instance that a reload changes.

    Attributes:
        engine: the engine.
        transports: the transports.
        certificate_check: checks the certificates in use.
        statistics: the statistics.
        actions: the actions.
        drain: drains the instance.
        shown: the text of the configuration that the admin interface shows.
    """

    engine: Engine
    transports: TransportTable
    certificate_check: CertificateCheck
    statistics: StatisticsService
    actions: ActionRunner
    drain: InstanceDrain
    shown: ConfigurationText


MakeReloadGroup: TypeAlias = "Callable[[ReloadServices], OperationGroup]"
"""Makes the operations that reload the configuration of an instance with these parts."""
