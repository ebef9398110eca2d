"""Makes the admin interface of an instance: its pages, and what they are made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from server.admin.access import Access
from server.admin.cross_site import CrossSite
from server.admin.engine_side import EngineSide
from server.admin.health import HEALTH_PATH, READY_PATH, Health
from server.admin.interface import AdminInterface
from server.admin.metrics.pages import DETAILED_PATH, PATH, Metrics
from server.admin.monitoring import CONFIGURATION, QUEUES, Monitoring
from server.admin.pages import ConfigurationText, FirstPage, QueueState
from server.admin.site import Route, Site, headers_of
from server.admin.tree import INSTANCE, MOMENT, ROOT
from server.statistics.histograms import distributions
from server.statistics.sources.queues import QueuesSource
from server.topics.queue_details import details
from server.transports.descriptors import DescriptorReserve

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.core.engine import Engine
    from server.links.replication import Replication
    from server.statistics.keeper import Keeper
    from server.transports.table import TransportTable


def provision_admin(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    statistics: Keeper,
    post: Callable[[Callable[[], None]], None],
    configuration: str,
    transports: TransportTable,
    replication: Replication | None,
) -> AdminInterface:
    """Make the admin interface.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: the engine; what is asked of it is asked on its thread.
        statistics: has the samples.
        post: has a call made on the engine's thread.
        configuration: the text of the whole configuration.
        transports: the transports.
        replication: what the instance has of replication; None if it has no part in it.
    """
    engine_side = EngineSide(post)
    access = Access(spec, admin, engine.switches, engine_side, engine.log)
    monitoring = Monitoring(statistics, access)

    def queue_details(message_type: str, name: str) -> dict[str, object] | None:
        queues, log = engine.topics.queues, engine.transaction_log
        queue = None if queues is None else queues.find(message_type, name)
        return None if queue is None or log is None else details(queue, log, engine.clock.now())

    first = FirstPage(spec, has_queries=admin.sql_transport is not None)
    state = QueueState(monitoring, access, engine_side, queue_details)
    queues = QueuesSource(engine.topics.queues or (), engine.clock)
    metrics = Metrics(monitoring, access, distributions(engine, queues.held))
    health = Health(access, engine_side, statistics, transports, replication)
    instance = (ROOT, INSTANCE)
    routes = [
        Route((), first.answer),
        Route((ROOT,), monitoring.answer, leads_on=True),
        Route((*instance, MOMENT), monitoring.moments, leads_on=True),
        Route((*instance, CONFIGURATION), ConfigurationText(configuration, access).answer),
        Route((ROOT, *QUEUES.split("/")), state.answer, leads_on=True),
        Route((PATH,), metrics.answer),
        Route((PATH, DETAILED_PATH), metrics.detailed),
        *(Route((HEALTH_PATH + form,), health.lives) for form in ("", ".json")),
        *(Route((READY_PATH + form,), health.is_ready) for form in ("", ".json")),
    ]
    site = Site(routes, access, CrossSite(admin.access_control_allow_origin))
    descriptors = DescriptorReserve(engine.clock, engine.log)
    return AdminInterface(
        admin, site.answer, monitoring, headers_of(admin), descriptors, engine.log
    )
