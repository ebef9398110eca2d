"""Explains which permissions a user has on an instance, and why: `ampServer --explain-access`.

The modules are made as for a start, and queried as when the user logs on; no transport is opened. A
web service or a directory that a module needs is queried, too. No password is verified: it is
assumed to be correct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from config_schema.catalogue import ModuleKind
from server.admin.audit_events import TRANSPORT as ADMIN
from server.app.wiring.access_resources import resource_of
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.provision import provision_functions
from server.security.authentication import (
    AcceptAllAuthenticator,
    LogonCredentials,
    LogonOrigin,
    RefuseAllAuthenticator,
)
from server.security.deferred import on_answer
from server.security.failed_logons import ThrottledAuthenticator
from server.security.http_entitlement.modules import HttpEntitlement
from server.security.modules import make_authenticator, make_entitlement
from server.security.permissions import Permission, Permit
from server.security.switches import SecuritySwitches
from server.security.users.modules import UsersAuthenticator
from server.topics.topic import is_reserved

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec, ModuleUse
    from server.expressions.functions.registry import Functions
    from server.security.authentication import LogonAuthenticator
    from server.security.entitlement import Entitlement
    from server.security.permissions import Permissions
    from server.util.log_protocol import ServerLog

_PATHS: Final = ("/amps/instance", "/amps/host", "/amps/administrator", "/console", "/metrics")
"""Paths of the admin interface that are always reported."""

_ASKED_WITH_CREDENTIALS: Final = (
    "the service returns permissions only with the password of the user"
)

_SERVER_ONLY: Final = "only the server publishes to it"

_READ: Final = "read"
_WRITE: Final = "write"


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """An authentication or entitlement module, as reported.

    Attributes:
        name: its name in the configuration; empty where none is configured.
        library: the library that it is loaded from; empty for a built-in one.
        help: its purpose.
        explanation: its statement about the user.
    """

    name: str
    library: str
    help: str
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The decision on one operation of the user.

    Attributes:
        resource: `log on`, `replicate`, or a topic or path.
        access: `read`, `write`, or empty for logons.
        permit: the decision.
    """

    resource: str
    access: str
    permit: Permit


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """A transport, or the admin interface.

    Attributes:
        transport: its name; `amps-admin` for the admin interface.
        address: the address that it listens on.
        authentication: the module that decides on logons.
        entitlement: the module that decides on all other operations.
        is_admitted: whether a logon can succeed.
        user: the user name passed to entitlement; empty for an anonymous user.
        decisions: the decisions on the user's operations, as far as they can be known.
    """

    transport: str
    address: str
    authentication: ModuleReport
    entitlement: ModuleReport
    is_admitted: bool
    user: str
    decisions: tuple[AccessDecision, ...]


@dataclass(frozen=True, slots=True)
class AccessQuery:
    """The subject of a report.

    Attributes:
        user: the user's name.
        topics: topics besides those of the configuration.
        paths: paths of the admin interface besides the default ones.
    """

    user: str
    topics: Sequence[str] = ()
    paths: Sequence[str] = ()


async def explain_access(
    spec: InstanceSpec, query: AccessQuery, log: ServerLog
) -> list[AccessPoint]:
    """Return the permissions of a user on each transport and on the admin interface.

    Args:
        spec: the instance.
        query: the user, with further topics and paths.
        log: gets the log entries of modules.

    Raises:
        ProvisionError: a function of the configuration cannot be made.
        SecurityError: a module cannot be made.
    """
    builder = _AccessReportBuilder(spec, query, provision_functions(spec, log), log)
    access_points = []
    for transport in spec.transports:
        address = transport.file_name or str(transport.inet_addr or "")
        operations = (
            builder.replication_operations()
            if transport.is_replication
            else builder.client_operations()
        )
        uses = transport.authentication, transport.entitlement
        access_points.append(
            await builder.explain_access_point(
                transport.name, address, uses, list(operations), transport.message_type
            )
        )
    admin = spec.admin
    if admin is not None and admin.inet_addr is not None:
        uses = admin.authentication, admin.entitlement
        operations = builder.admin_operations()
        access_points.append(
            await builder.explain_access_point(ADMIN, str(admin.inet_addr), uses, list(operations))
        )
    return access_points


@dataclass(frozen=True, slots=True)
class _AccessReportBuilder:
    spec: InstanceSpec
    query: AccessQuery
    functions: Functions
    log: ServerLog

    def client_operations(self) -> Iterator[tuple[str, str, Permission]]:
        """Yield a client's possible operations: name, access and permission."""
        yield "log on", "", Permission.LOGON
        for topic in self._all_topics():
            yield topic, _READ, Permission.READ_TOPIC
            yield topic, _WRITE, Permission.WRITE_TOPIC

    def replication_operations(self) -> Iterator[tuple[str, str, Permission]]:
        """Yield the same for an instance that replicates to this one."""
        yield "replicate", "", Permission.REPLICATION_LOGON
        for topic in self._all_topics():
            yield topic, "replicate", Permission.REPLICATE_TOPIC

    def admin_operations(self) -> Iterator[tuple[str, str, Permission]]:
        """Yield the same for a user of the admin interface."""
        for path in dict.fromkeys((*_PATHS, *self.query.paths)):
            yield path, _READ, Permission.READ_ADMIN

    async def explain_access_point(
        self,
        transport: str,
        address: str,
        uses: tuple[ModuleUse | None, ModuleUse | None],
        operations: Iterable[tuple[str, str, Permission]],
        message_type: str | None = None,
    ) -> AccessPoint:
        """Query the modules of a transport, and return their decisions."""
        around = SecuritySwitches().module_services(
            transport, self.spec.modules, self.functions, self.log
        )
        authentication = uses[0] or self.spec.authentication
        entitlement = uses[1] or self.spec.entitlement
        admitted, user, says = _authenticate(
            make_authenticator(authentication, around), self.query.user
        )
        authentication_report = self._module_report(authentication, ModuleKind.AUTHENTICATION, says)
        module = make_entitlement(entitlement, around)
        needs_password = _ASKED_WITH_CREDENTIALS if isinstance(module, HttpEntitlement) else ""
        entitlement_report = self._module_report(
            entitlement, ModuleKind.ENTITLEMENT, needs_password
        )
        rights: tuple[AccessDecision, ...] = ()
        if admitted and not needs_password:
            permissions = await _entered(module, user)
            rights = tuple(
                self._decide_operation(permissions, *operation, message_type)
                for operation in operations
            )
            permissions.release()
        return AccessPoint(
            transport, address, authentication_report, entitlement_report, admitted, user, rights
        )

    def _decide_operation(
        self,
        permissions: Permissions,
        name: str,
        access: str,
        permission: Permission,
        message_type: str | None,
    ) -> AccessDecision:
        """Return the decision on one operation of the user."""
        if permission is Permission.READ_ADMIN or not access:
            return AccessDecision(
                name, access, permissions.get_permit(permission, name if access else "")
            )
        resource = resource_of(self.spec, name, message_type)
        permit = permissions.get_permit(permission, resource)
        if resource != name:
            permit = replace(permit, rule=f"as {resource}, which has its Pattern: {permit.rule}")
        if permission is Permission.WRITE_TOPIC and permit.is_allowed and is_reserved(name):
            permit = self._without_publishing(name, permit)
        return AccessDecision(name, access, permit)

    def _without_publishing(self, topic: str, permit: Permit) -> Permit:
        """Reduce a write permit for a topic that only the server publishes to."""
        if any(spec.name == topic for spec in self.spec.sow):
            return replace(permit, rule=f"{permit.rule}; to delete records: {_SERVER_ONLY}")
        return Permit(False, rule=_SERVER_ONLY)

    def _all_topics(self) -> Iterable[str]:
        recorded = self.spec.transaction_log
        journaled = () if recorded is None else recorded.topics
        return dict.fromkeys(
            (
                *(topic.name for topic in self.spec.sow),
                *(topic.name for topic in journaled if not topic.is_expression),
                *self.query.topics,
            )
        )

    def _module_report(
        self, use: ModuleUse | None, kind: ModuleKind, says: str = ""
    ) -> ModuleReport:
        if use is None:
            return ModuleReport("", "", "none is configured: everything is allowed", says)
        catalogue = ProgramCatalogue()
        built_in = catalogue.modules(kind).get(use.module)
        if built_in is not None:
            return ModuleReport(use.module, "", built_in.help, says)
        loaded = next(module for module in self.spec.modules if module.name == use.module)
        library = catalogue.libraries.get(loaded.library_name)
        words = "written in Python" if library is None else library.uses[kind].help
        return ModuleReport(use.module, loaded.library, words, says)


def _authenticate(module: LogonAuthenticator, user: str) -> tuple[bool, str, str]:
    """Return whether a user can log on, the resulting user name, and a remark."""
    inner = module.module if isinstance(module, ThrottledAuthenticator) else module
    if isinstance(inner, AcceptAllAuthenticator | RefuseAllAuthenticator):
        by_certificate = isinstance(inner, AcceptAllAuthenticator) and inner.trust_certificate
        origin = LogonOrigin(certificate_user=user)
        admission = inner.authenticate(LogonCredentials(user, "", explicit=True, origin=origin))
        if admission.granted and by_certificate:
            return True, user, "asks for a certificate that names the user"
        if admission.granted and user and not admission.user:
            return True, "", "authenticates no name: entitlement is asked about an anonymous user"
        return admission.granted, admission.user, admission.reason if not admission.granted else ""
    if isinstance(inner, UsersAuthenticator):
        return inner.explain_logon(user)
    return True, user, "decides when the user logs on; it is taken for granted that it agrees"


async def _entered(module: Entitlement, user: str) -> Permissions:
    """Return a user's permissions once the module has decided."""
    answer: asyncio.Future[Permissions] = asyncio.get_running_loop().create_future()
    on_answer(module.acquire_permissions(user), answer.set_result)
    return await answer
