"""Switches for authentication and entitlement while an instance runs.

Wrappers stand before the configured modules of a transport; a reload replaces the modules. With
authentication off, the default module decides on logons, and vouches for no user name. With
entitlement off, every user may do everything, and modules are not queried. When entitlement is on
again, users that logged on meanwhile get the permissions of their module as soon as these are
known, and none before.

Source: AMPS User Guide, Manage Security; Disabling Entitlement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.security.async_worker import AsyncWorker
from server.security.cookies import CookieSessions
from server.security.deferred import mapped, on_answer
from server.security.failed_logons import FailedLogons
from server.security.http_entitlement.modules import HttpEntitlementServices
from server.security.modules import OPEN, SecurityModuleServices
from server.security.permissions import ALL_PERMISSIONS, NO_PERMISSIONS
from server.security.users.files import UsersFiles

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec
    from server.expressions.functions.registry import Functions
    from server.security.authentication import LogonAuthenticator, LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.security.entitlement import Entitlement
    from server.security.permissions import Permission, Permissions, Permit
    from server.util.log_protocol import ServerLog


@dataclass(eq=False, slots=True)
class TransportSecurity:
    """The modules of a transport, behind the switches.

    Attributes:
        transport: its name.
        authenticator: decides on logons.
        entitlement: has the permissions.
        forget_functions: functions that forget the permissions of a user, or of all users for None,
            so that they are determined again.
    """

    transport: str
    authenticator: SwitchedAuthenticator
    entitlement: SwitchedEntitlement
    forget_functions: list[Callable[[str | None], None]]


@dataclass(slots=True)
class SecuritySwitches:
    """The state of both switches, for all transports of an instance, and the modules behind them.

    Attributes:
        is_authentication_on: whether authentication is on.
        is_entitlement_on: whether entitlement is on.
        transports: the modules of the transports.
        worker: runs the slow decisions of modules.
        failed_logons: counts failed logons.
        users_files: the open users files.
        sessions: the sessions of the admin interface.
        web_services: the state that modules with web services share.
        reset: ends connections, and makes all modules forget their users' permissions; takes the
            name of a transport and of a user.
    """

    is_authentication_on: bool = True
    is_entitlement_on: bool = True
    transports: list[TransportSecurity] = field(default_factory=list)
    worker: AsyncWorker = field(default_factory=AsyncWorker)
    failed_logons: FailedLogons = field(default_factory=FailedLogons)
    users_files: UsersFiles = field(default_factory=UsersFiles)
    sessions: CookieSessions = field(default_factory=CookieSessions)
    web_services: HttpEntitlementServices = field(default_factory=HttpEntitlementServices)
    reset: Callable[[str, str], None] = field(default=lambda _transport, _user: None)

    def module_services(
        self, transport: str, modules: Iterable[ModuleSpec], functions: Functions, log: ServerLog
    ) -> SecurityModuleServices:
        """Return the dependencies of the modules of a transport.

        Args:
            transport: its name.
            modules: the modules that the configuration loads.
            functions: the functions of filters.
            log: receives their log entries.
        """
        return SecurityModuleServices(
            modules,
            functions,
            log,
            self.worker,
            self.failed_logons,
            self.users_files,
            transport,
            self.web_services,
            lambda user: self.reset(transport, user),
        )

    def wrap_modules(
        self, transport: str, authenticator: LogonAuthenticator, entitlement: Entitlement
    ) -> TransportSecurity:
        """Return wrappers for the modules of a transport, to be added to `transports`."""
        switched = SwitchedEntitlement(entitlement, self)
        return TransportSecurity(
            transport, SwitchedAuthenticator(authenticator, self), switched, [switched.forget]
        )

    def forget_logons(self) -> None:
        """Reset authentication: every logon is decided again, and admin sessions end."""
        for security in self.transports:
            security.authenticator.forget()
        self.sessions.end_all()

    def forget_permissions(self, transport: str | None, user: str | None) -> None:
        """Reset entitlement: permissions are determined again.

        Args:
            transport: the transport; None for all.
            user: the user; None for all.
        """
        for security in self.transports:
            if transport in (None, security.transport):
                for forget in security.forget_functions:
                    forget(user)


@dataclass(eq=False, slots=True)
class SwitchedAuthenticator:
    """Delegates to a module while authentication is on.

    Attributes:
        module: the module; may be replaced, for logons from then on.
        switches: has the state of the switch.
    """

    module: LogonAuthenticator
    switches: SecuritySwitches

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return self._active_module.begin_logon()

    def begin_scram(self, user: str, channel_binding: bytes) -> LogonExchange | None:
        """See `LogonAuthenticator`."""
        return self._active_module.begin_scram(user, channel_binding)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.module.forget()

    @property
    def _active_module(self) -> LogonAuthenticator:
        return self.module if self.switches.is_authentication_on else OPEN


class SwitchedEntitlement:
    """Delegates to a module while entitlement is on.

    Args:
        module: the module.
        switches: has the state of the switch.

    Attributes:
        module: the module; may be replaced, for permissions that are acquired from then on.
    """

    def __init__(self, module: Entitlement, switches: SecuritySwitches) -> None:
        self.module = module
        self._switches = switches

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:
        """See `Entitlement`."""
        if not self._switches.is_entitlement_on:
            return _SwitchedPermissions(user, self.module, self._switches, None)
        return mapped(
            self.module.acquire_permissions(user),
            lambda inner: _SwitchedPermissions(user, self.module, self._switches, inner),
        )

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        self.module.forget(user)


class _SwitchedPermissions:
    """The permissions of a user: those of the module while entitlement is on, all while it is off.

    Args:
        user: the user.
        module: queried on first need, unless `inner` is given.
        switches: has the state of the switch.
        inner: the permissions from the module; None if it has not been queried.
    """

    def __init__(
        self, user: str, module: Entitlement, switches: SecuritySwitches, inner: Permissions | None
    ) -> None:
        self._user = user
        self._module = module
        self._switches = switches
        self._inner = inner
        self._has_requested = inner is not None
        self._is_released = False

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        if not self._switches.is_entitlement_on:
            return ALL_PERMISSIONS.decision
        if not self._has_requested:
            self._has_requested = True
            on_answer(self._module.acquire_permissions(self._user), self._set_inner)
        return (self._inner or NO_PERMISSIONS).get_permit(permission, resource)

    def allows_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        if not self._switches.is_entitlement_on or self._inner is None:
            return None
        return self._inner.allows_instance(name)

    def release(self) -> None:
        """See `Permissions`."""
        self._is_released = True
        if self._inner is not None:
            self._inner.release()

    def _set_inner(self, inner: Permissions) -> None:
        self._inner = inner
        if self._is_released:
            inner.release()
