"""Authentication and entitlement modules, changed while the instance runs.

New logons use the new modules. A client that is logged on stays so if authentication has changed,
as with a reset of authentication; if the entitlement of its transport has changed, it is
disconnected, as by a reset of entitlement, and logs on again with new permissions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from actions.reset import reset_entitlement
from config_schema.spec import AdminSpec, InstanceSpec, ModuleSpec, ModuleUse, TransportSpec
from config_schema.spec.exposure import accepts_any_client
from server.admin.audit_events import TRANSPORT as ADMIN
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadRefusedError,
    parts_of,
)
from server.app.wiring.provision_security import (
    other_modules,
    security_uses,
    users_file_uses,
)
from server.security import modules
from server.security.modules import DEFAULT

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.security.authentication import LogonAuthenticator
    from server.security.entitlement import Entitlement
    from server.security.switches import TransportSecurity

SECTIONS: Final = ("Authentication", "Entitlement")
"""The elements of the modules, of the instance, its transports and its admin interface."""


@dataclass(frozen=True, slots=True)
class _SecuredInterface:
    """A transport, or the admin interface.

    Attributes:
        authentication: its authentication module; None for the default.
        entitlement: its entitlement module; None if everything is allowed.
    """

    authentication: ModuleUse | None
    entitlement: ModuleUse | None


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The modules that take the place of those of a transport; None for those that stay."""

    security: TransportSecurity
    authenticator: LogonAuthenticator | None
    entitlement: Entitlement | None
    auth_module: str


class SecurityReload:
    """Authentication and entitlement; see `ReloadablePart`.

    Args:
        engine: has the modules.
        transports: the transports.
    """

    def __init__(self, engine: Engine, transports: TransportTable) -> None:
        self._engine = engine
        self._transports = transports

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        loaded = [part for part in parts_of(change) if isinstance(part, ModuleSpec)]
        if loaded:
            specs = (reload.old, reload.new)
            used = {use.module for spec in specs for use in security_uses(spec)}
            used -= {name for spec in specs for name in other_modules(spec)}
            return "" if all(module.name in used for module in loaded) else None
        if change.key.partition("/")[0] not in SECTIONS:
            return None
        interfaces = _secured_interfaces(reload.new).items()
        reasons = (_reason(name, interface, reload) for name, interface in interfaces)
        return next(filter(None, reasons), "")

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        files = self._engine.security_switches.users_files
        discard = partial(files.set_uses, users_file_uses(reload.old))
        try:
            replacements = list(self._make_replacements(reload))
        except modules.SecurityError as error:
            discard()
            raise ReloadRefusedError(str(error)) from None
        except BaseException:
            discard()
            raise

        async def apply() -> None:
            for replacement in replacements:
                self._apply(replacement)
            files.set_uses(users_file_uses(reload.new))

        return PreparedChange(apply, discard)

    def _make_replacements(self, reload: ConfigurationChange) -> Iterator[_Replacement]:
        """Make the modules of all transports that have others than before.

        Raises:
            SecurityError: a module cannot be made.
        """
        old, new = _secured_interfaces(reload.old), _secured_interfaces(reload.new)
        switches, settings = self._engine.security_switches, self._engine.settings
        for security in switches.transports:
            name = security.transport
            before, after = old.get(name), new.get(name)
            if before is None or after is None:
                continue
            differs, entitlement_differs = (
                one != other
                for one, other in zip(
                    _modules_of(reload.old, before), _modules_of(reload.new, after), strict=True
                )
            )
            services = switches.module_services(
                name, reload.new.modules, settings.functions, self._engine.log
            )
            use = after.authentication
            if differs or entitlement_differs:
                yield _Replacement(
                    security,
                    modules.make_authenticator(use, services) if differs else None,
                    modules.make_entitlement(after.entitlement, services)
                    if entitlement_differs
                    else None,
                    DEFAULT if use is None else use.module,
                )

    def _apply(self, replacement: _Replacement) -> None:
        security, name = replacement.security, replacement.security.transport
        if replacement.authenticator is not None:
            security.authenticator.module = replacement.authenticator
            for listener in self._transports.listeners:
                if listener.spec.name == name:
                    context = listener.transport_context
                    context.connection_context = replace(
                        context.connection_context, auth_module=replacement.auth_module
                    )
            if name == ADMIN:
                self._engine.security_switches.sessions.end_all()
        if replacement.entitlement is not None:
            security.entitlement.module = replacement.entitlement
            reset_entitlement(self._engine, name)


def interfaces_with_other_modules(reload: ConfigurationChange) -> set[str]:
    """Return the transports, and the admin interface, that have other modules than before."""
    old, new = _secured_interfaces(reload.old), _secured_interfaces(reload.new)
    return {
        name
        for name in old.keys() & new.keys()
        if _modules_of(reload.old, old[name]) != _modules_of(reload.new, new[name])
    }


def _secured_interfaces(spec: InstanceSpec) -> dict[str, _SecuredInterface]:
    """Return the transports and the admin interface with their modules, by name."""
    parts: dict[str, TransportSpec | AdminSpec] = {one.name: one for one in spec.transports}
    if spec.admin is not None:
        parts[ADMIN] = spec.admin
    return {
        name: _SecuredInterface(
            part.authentication or spec.authentication, part.entitlement or spec.entitlement
        )
        for name, part in parts.items()
    }


def _comparison_key(spec: InstanceSpec, use: ModuleUse | None) -> Hashable:
    """Return a value that is equal for modules that decide in the same way."""
    if use is None:
        return None
    loaded = (module for module in spec.modules if module.name == use.module)
    return use.meaning, tuple((module.library, module.options.meaning) for module in loaded)


def _reason(name: str, after: _SecuredInterface, reload: ConfigurationChange) -> str:
    """Return why other modules of a transport or the admin interface need a restart; "" if not."""
    before = _secured_interfaces(reload.old).get(name)
    if before is None or _modules_of(reload.old, before) == _modules_of(reload.new, after):
        return ""
    modules = {protocol.name: protocol.module for protocol in reload.new.protocols}
    protocols = {one.name: modules.get(one.protocol, one.protocol) for one in reload.new.transports}
    if name == ADMIN:
        if _checks_of(before) != _checks_of(after):
            return "the admin interface begins or ceases to check users"
    elif protocols[name] == "websocket" and _checks_of(before)[0] != _checks_of(after)[0]:
        return "it decides which web pages may connect"
    return ""


def _modules_of(spec: InstanceSpec, interface: _SecuredInterface) -> tuple[Hashable, Hashable]:
    authentication, entitlement = interface.authentication, interface.entitlement
    return _comparison_key(spec, authentication), _comparison_key(spec, entitlement)


def _checks_of(interface: _SecuredInterface) -> tuple[bool, bool, bool]:
    """Return whether credentials are not checked, and whether there are modules at all."""
    return (
        accepts_any_client(interface.authentication),
        interface.authentication is None,
        interface.entitlement is None,
    )
