"""Makes the admin interface of an instance: its pages and their data sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from config_schema.spec.exposure import accepts_everyone
from server.admin.access import Access
from server.admin.audit_events import TRANSPORT, Trail
from server.admin.csrf import CrossSite
from server.admin.diagnosis.collector import Gathering
from server.admin.diagnosis.pages import Explaining
from server.admin.engine_calls import EngineSide
from server.admin.health import HEALTH_PATH, READY_PATH, Health
from server.admin.history import Past
from server.admin.interface import AdminInterface
from server.admin.metrics.pages import DETAILED_PATH, PATH, Metrics
from server.admin.monitoring import CONFIGURATION, FILTERS, QUEUES, Monitoring
from server.admin.operations.groups import groups_of
from server.admin.operations.resource import ADMINISTRATOR, METHODS, Administrator
from server.admin.pages import ConfigurationText, FirstPage, QueueState
from server.admin.permissions import VisitorPermissions
from server.admin.site import Route, Site, headers_of
from server.admin.tree import INSTANCE, MOMENT, ROOT
from server.app.wiring.provision import ProvisionError
from server.queues.topic.status import details
from server.security import modules as security
from server.statistics.histograms import distributions
from server.statistics.resources import CLIENTS
from server.storage.sow.records import NANOSECONDS
from server.transports.descriptor_reserve import DescriptorReserve
from server.transports.own_hosts import OwnHosts, own_names

if TYPE_CHECKING:
    from actions.services import Services
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.engine.engine import Engine
    from server.statistics.statistics_thread import Keeper


def provision_admin(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    services: Services,
    statistics: Keeper,
    post: Callable[[Callable[[], None]], None],
    configuration: str,
    console: Callable[[Access, EngineSide, CrossSite], list[Route]],
) -> AdminInterface:
    """Make the admin interface.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: the engine; it is queried on its thread.
        services: the operations that administrators can perform on the instance.
        statistics: has the samples.
        post: executes a callback on the engine's thread.
        configuration: the text of the whole configuration.
        console: makes the paths of the console.
    """
    engine_side = EngineSide(post)
    use = admin.authentication or spec.authentication
    trail = Trail(engine.audit, "" if use is None else use.module, engine_side)
    access = _make_access(spec, admin, engine, engine_side, trail)
    past = Past(statistics, access)
    monitoring = Monitoring(statistics, past, access)

    def queue_details(message_type: str, name: str) -> dict[str, object] | None:
        queues, log = engine.topics.queues, engine.transaction_log
        queue = None if queues is None else queues.find(message_type, name)
        return None if queue is None or log is None else details(queue, log, engine.clock.steady())

    cross_site = CrossSite(
        admin.access_control_allow_origin,
        OwnHosts(own_names(admin)),
        is_open=accepts_everyone(admin.authentication, spec.authentication),
        is_encrypted=admin.tls is not None,
    )
    administrator = Administrator(
        groups_of(services), access, cross_site, engine_side, trail, engine.log
    )
    first = (
        console(access, engine_side, cross_site)
        if admin.galvanometer
        else [Route((), FirstPage(spec, has_queries=admin.sql_transport is not None).answer)]
    )
    state = QueueState(monitoring, access, engine_side, queue_details)
    interval = admin.interval / NANOSECONDS
    explaining = Explaining(monitoring, past, access, engine_side, Gathering(engine), interval)
    metrics = Metrics(monitoring, access, distributions(engine))
    health = Health(access, engine_side, statistics, services.transports, services.replication)
    instance = (ROOT, INSTANCE)
    routes = [
        *first,
        Route((ROOT,), monitoring.answer, leads_on=True),
        Route((*instance, MOMENT), past.moments, leads_on=True),
        Route((*instance, CONFIGURATION), ConfigurationText(configuration, access).answer),
        Route((ROOT, *QUEUES.split("/")), state.answer, leads_on=True),
        Route((ROOT, *CLIENTS.path.split("/")), explaining.client, leads_on=True),
        Route((*instance, FILTERS), explaining.filters, leads_on=True),
        Route((PATH,), metrics.answer),
        Route((PATH, DETAILED_PATH), metrics.detailed),
        *(Route((HEALTH_PATH + form,), health.lives, is_public=True) for form in ("", ".json")),
        *(Route((READY_PATH + form,), health.is_ready, is_public=True) for form in ("", ".json")),
        Route((ROOT, ADMINISTRATOR), administrator.answer, leads_on=True, methods=METHODS),
    ]
    site = Site(routes, access, cross_site)
    descriptors = DescriptorReserve(engine.clock, engine.log)
    return AdminInterface(
        admin, site.answer, monitoring, headers_of(admin), descriptors, engine.log
    )


def _make_access(
    spec: InstanceSpec, admin: AdminSpec, engine: Engine, engine_side: EngineSide, trail: Trail
) -> Access:
    """Make the access control, with the modules of the section or else those of the instance.

    Raises:
        ProvisionError: a module cannot be made.
    """
    authentication = admin.authentication or spec.authentication
    entitlement = admin.entitlement or spec.entitlement
    around = engine.switches.surroundings(
        TRANSPORT, spec.modules, engine.settings.functions, engine.log
    )
    try:
        standing = engine.switches.switched(
            TRANSPORT,
            security.make_authenticator(authentication, around),
            security.make_entitlement(entitlement, around),
        )
    except security.SecurityError as error:
        raise ProvisionError(admin, str(error)) from None
    permissions = None
    if entitlement is not None:
        permissions = VisitorPermissions(standing[1])
        engine.switches.entitlements.append((TRANSPORT, permissions))
    authenticator = None if authentication is None else standing[0]
    sessions = engine.switches.sessions
    return Access(admin, authenticator, permissions, engine_side, trail, engine.log, sessions)
