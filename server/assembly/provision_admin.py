"""Makes the admin interface of an instance: its pages, and what they are made from."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from server.admin.access import Access
from server.admin.administrator.administrator import ADMINISTRATOR, METHODS, Administrator
from server.admin.administrator.groups import groups_of
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
from server.topics.queue_details import details
from server.transports.descriptors import DescriptorReserve

if TYPE_CHECKING:
    from actions.services import Services
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.core.engine import Engine
    from server.statistics.keeper import Keeper


def provision_admin(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    services: Services,
    statistics: Keeper,
    post: Callable[[Callable[[], None]], None],
    configuration: str,
) -> AdminInterface:
    """Make the admin interface.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: the engine; what is asked of it is asked on its thread.
        services: what can be done to the instance.
        statistics: has the samples.
        post: has a call made on the engine's thread.
        configuration: the text of the whole configuration.
    """
    engine_side = EngineSide(post)
    access = Access(spec, admin, engine.switches, engine_side, engine.log)
    monitoring = Monitoring(statistics, access)

    def queue_details(message_type: str, name: str) -> dict[str, object] | None:
        queues, log = engine.topics.queues, engine.transaction_log
        queue = None if queues is None else queues.find(message_type, name)
        return None if queue is None or log is None else details(queue, log, engine.clock.now())

    cross_site = CrossSite(admin.access_control_allow_origin, _own_names(spec, admin))
    administrator = Administrator(groups_of(services), access, cross_site, engine_side, engine.log)
    first = FirstPage(spec, has_queries=admin.sql_transport is not None)
    state = QueueState(monitoring, access, engine_side, queue_details)
    metrics = Metrics(monitoring, access, distributions(engine))
    health = Health(access, engine_side, statistics, services.transports, services.replication)
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
        Route((ROOT, ADMINISTRATOR), administrator.answer, leads_on=True, methods=METHODS),
    ]
    site = Site(routes, access, cross_site)
    descriptors = DescriptorReserve(engine.clock, engine.log)
    return AdminInterface(
        admin, site.answer, monitoring, headers_of(admin), descriptors, engine.log
    )


def _own_names(spec: InstanceSpec, admin: AdminSpec) -> list[str] | None:
    """What the host is called; None if nobody can do anything by a name of somebody else's."""
    if admin.tls is not None or admin.authentication is not None or spec.authentication is not None:
        return None
    own = None if admin.inet_addr is None else admin.inet_addr.host
    external = urlsplit(f"//{admin.external_inet_addr or ''}").hostname
    return [platform.node(), *filter(None, (own, external))]
