"""Makes the admin interface of an instance: its pages and their data sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from config_schema.spec.exposure import accepts_any_client
from server.admin.access import AccessControl
from server.admin.audit_events import TRANSPORT, AdminAudit
from server.admin.csrf import CsrfProtection
from server.admin.diagnosis.collector import ClientFactsCollector
from server.admin.diagnosis.delays_page import DelaysPage
from server.admin.diagnosis.directories import instance_directories
from server.admin.diagnosis.file_checks import certificate_findings, disk_findings
from server.admin.diagnosis.findings_page import FileFindings, FindingsPage
from server.admin.diagnosis.pages import DiagnosisPages
from server.admin.engine_calls import EngineCalls
from server.admin.health import HEALTH_PATH, READY_PATH, Health
from server.admin.history import HistoryPages
from server.admin.interface import AdminInterface
from server.admin.metrics.pages import DETAILED_PATH, PATH, MetricsPage
from server.admin.monitoring import (
    CONFIGURATION,
    DELAYS,
    FILTERS,
    FINDINGS,
    QUEUES,
    MonitoringPages,
)
from server.admin.operations.drain import drain_group
from server.admin.operations.groups import groups_of
from server.admin.operations.resource import ADMINISTRATOR, METHODS, OperationsResource
from server.admin.pages import ConfigurationPage, QueueStatePage, RootPage
from server.admin.permissions import AdminPermissionCache
from server.admin.site import AdminSite, HttpRoute, headers_of
from server.admin.tree import INSTANCE, ROOT, TIMESTAMP_FIELD
from server.app.wiring.drain import DrainError, InstanceDrain
from server.app.wiring.provision import ProvisionError
from server.queues.topic.status import details, first_messages
from server.security import modules as security
from server.statistics.histograms import distributions
from server.statistics.resources import CLIENTS
from server.transports.descriptor_reserve import DescriptorReserve
from server.transports.own_hosts import OwnHosts, own_names

if TYPE_CHECKING:
    from actions.services import ActionServices
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.diagnosis.findings import CheckFinding
    from server.admin.operations.operation import OperationGroup
    from server.admin.pages import ConfigurationText
    from server.engine.engine import Engine
    from server.engine.maintenance.certificate_expiry import CertificateCheck
    from server.log.event_log import EventLog
    from server.queues.topic.queue_topic import QueueTopic
    from server.statistics.statistics_thread import StatisticsThread


def provision_admin(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    services: ActionServices,
    statistics: StatisticsThread,
    post: Callable[[Callable[[], None]], None],
    configuration: ConfigurationText,
    console: Callable[[AccessControl, EngineCalls, CsrfProtection], list[HttpRoute]],
    operation_groups: Sequence[OperationGroup],
    drain: InstanceDrain,
    log: EventLog,
    certificates: CertificateCheck,
) -> AdminInterface:
    """Make the admin interface.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: the engine; it is queried on its thread.
        services: the operations that administrators can perform on the instance.
        statistics: has the samples.
        post: executes a callback on the engine's thread.
        configuration: the configuration that the instance runs.
        console: makes the paths of the console.
        operation_groups: operations on parts that the services do not have.
        drain: drains the instance.
        log: the log.
        certificates: the certificates in use.
    """
    engine_calls = EngineCalls(post)
    use = admin.authentication or spec.authentication
    audit = AdminAudit(engine.audit, "" if use is None else use.module, engine_calls)
    access = _make_access(spec, admin, engine, engine_calls, audit)
    past = HistoryPages(statistics, access)
    monitoring = MonitoringPages(statistics, past, access)
    csrf = CsrfProtection(
        admin.access_control_allow_origin,
        OwnHosts(own_names(admin)),
        is_unauthenticated=accepts_any_client(admin.authentication, spec.authentication),
        is_encrypted=admin.tls is not None,
    )
    groups = [
        *groups_of(services, Path(admin.backup_directory)),
        drain_group(drain, DrainError),
        *operation_groups,
    ]
    administrator = OperationsResource(groups, access, csrf, engine_calls, audit, engine.log)
    first = (
        console(access, engine_calls, csrf)
        if admin.galvanometer
        else [
            HttpRoute(
                (), RootPage(spec, has_queries=admin.sql_transport is not None).handle_request
            )
        ]
    )
    state = _queue_state_page(engine, monitoring, access, csrf, engine_calls)
    explaining = DiagnosisPages(
        monitoring, past, access, engine_calls, ClientFactsCollector(engine), statistics
    )
    tracer = engine.message_tracer
    spans = None if tracer is None else tracer.queue
    metrics = MetricsPage(monitoring, access, distributions(engine), spans)
    health = Health(
        access, engine_calls, statistics, services.transports, services.replication, drain
    )
    findings = FindingsPage(
        _file_findings(configuration, log, certificates), health, monitoring, log.recent, access
    )
    delays = DelaysPage(engine.scheduler, post, access)
    instance = (ROOT, INSTANCE)
    routes = [
        *first,
        HttpRoute((ROOT,), monitoring.handle_request, is_prefix=True),
        HttpRoute((*instance, TIMESTAMP_FIELD), past.handle_timestamps_request, is_prefix=True),
        HttpRoute(
            (*instance, CONFIGURATION), ConfigurationPage(configuration, access).handle_request
        ),
        HttpRoute((ROOT, *QUEUES.split("/")), state.handle_request, is_prefix=True),
        HttpRoute(
            (ROOT, *CLIENTS.path.split("/")), explaining.handle_client_request, is_prefix=True
        ),
        HttpRoute((*instance, FILTERS), explaining.handle_filters_request, is_prefix=True),
        HttpRoute((*instance, DELAYS), delays.handle_request, is_prefix=True),
        HttpRoute((*instance, FINDINGS), findings.handle_request, is_prefix=True),
        HttpRoute((PATH,), metrics.handle_request),
        HttpRoute((PATH, DETAILED_PATH), metrics.handle_detail_request),
        *(
            HttpRoute((HEALTH_PATH + form,), health.handle_health_request, is_public=True)
            for form in ("", ".json")
        ),
        *(
            HttpRoute((READY_PATH + form,), health.handle_ready_request, is_public=True)
            for form in ("", ".json")
        ),
        HttpRoute(
            (ROOT, ADMINISTRATOR), administrator.handle_request, is_prefix=True, methods=METHODS
        ),
    ]
    site = AdminSite(routes, access, csrf)
    descriptors = DescriptorReserve(engine.clock, engine.log)
    return AdminInterface(
        admin, site.handle_request, monitoring, headers_of(admin), descriptors, engine.log
    )


def _queue_state_page(
    engine: Engine,
    monitoring: MonitoringPages,
    access: AccessControl,
    csrf: CsrfProtection,
    engine_calls: EngineCalls,
) -> QueueStatePage:
    def find_queue(message_type: str, name: str) -> QueueTopic | None:
        queues = engine.topics.queues
        return None if queues is None else queues.find(message_type, name)

    def queue_details(message_type: str, name: str) -> dict[str, object] | None:
        queue, log = find_queue(message_type, name), engine.transaction_log
        return None if queue is None or log is None else details(queue, log, engine.clock.steady())

    def queue_messages(message_type: str, name: str) -> dict[str, object] | None:
        queue = find_queue(message_type, name)
        return None if queue is None else {"messages": first_messages(queue, engine.clock.steady())}

    return QueueStatePage(monitoring, access, csrf, engine_calls, queue_details, queue_messages)


def _file_findings(
    configuration: ConfigurationText, log: EventLog, certificates: CertificateCheck
) -> FileFindings:
    def find_in_files() -> Iterator[CheckFinding]:
        targets = tuple(target.spec for target in log.targets)  # a reload replaces them
        yield from certificate_findings(certificates.users)
        yield from disk_findings(
            instance_directories(replace(configuration.version.spec, logging=targets))
        )

    return FileFindings(find_in_files)


def _make_access(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    engine_calls: EngineCalls,
    audit: AdminAudit,
) -> AccessControl:
    """Make the access control, with the modules of the section or else those of the instance.

    Raises:
        ProvisionError: a module cannot be made.
    """
    authentication = admin.authentication or spec.authentication
    entitlement = admin.entitlement or spec.entitlement
    around = engine.security_switches.module_services(
        TRANSPORT, spec.modules, engine.settings.functions, engine.log
    )
    try:
        switched = engine.security_switches.wrap_modules(
            TRANSPORT,
            security.make_authenticator(authentication, around),
            security.make_entitlement(entitlement, around),
        )
    except security.SecurityError as error:
        raise ProvisionError(admin, str(error)) from None
    engine.security_switches.transports.append(switched)
    sessions, permissions = engine.security_switches.sessions, None
    if entitlement is not None:
        permissions = AdminPermissionCache(switched.entitlement)
        switched.forget_functions += [permissions.forget, lambda _user: sessions.end_streams()]
    authenticator = None if authentication is None else switched.authenticator
    return AccessControl(
        admin, authenticator, permissions, engine_calls, audit, engine.log, sessions
    )
