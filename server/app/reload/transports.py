"""Transports, added, removed and changed while the instance runs, and limits for slow clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from config_schema.compile.transports import TLS_ELEMENTS
from config_schema.spec import ProtocolSpec, TransportSpec
from server.admin.audit_events import TRANSPORT as ADMIN
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadRefusedError,
    parts_of,
)
from server.app.reload.security import SECTIONS, interfaces_with_other_modules
from server.app.wiring.sql_transports import sql_transports
from server.topics.subscriptions.limits.client_limits import has_own_pool
from server.transports.listener import TransportError

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from server.app.wiring.transport_table import TransportTable
    from server.engine.maintenance.certificate_expiry import CertificateCheck

_LIMITS: Final = (
    "MessageMemoryLimit",
    "MessageDiskLimit",
    "ClientMaxCapacity",
    "ClientMessageAgeLimit",
)


_SQL_LIMITS: Final = (
    "SQL/MaxMemory",
    "SQL/MaxThreads",
    "SQL/StatementTimeout",
    "SQL/SlowQuery",
)


class TransportsReload:
    """The transports; see `ReloadablePart`.

    Args:
        transports: the transports.
        certificate_check: checks the certificates in use.
    """

    def __init__(self, transports: TransportTable, certificate_check: CertificateCheck) -> None:
        self._transports = transports
        self._certificate_check = certificate_check

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:  # noqa: ARG002 - of the interface
        """See `ReloadablePart.check`."""
        if len(change.entries) == 1 and change.key in (*_LIMITS, *_SQL_LIMITS):
            return ""
        is_concerned = any(
            isinstance(part, TransportSpec | ProtocolSpec) for part in parts_of(change)
        )
        return "" if is_concerned else None

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        replaced, secured = _replaced_names(reload), _secured_names(reload)
        try:
            prepared = self._transports.prepare(reload.new, replaced, secured)
        except TransportError as error:
            raise ReloadRefusedError(str(error)) from None
        remarks = (
            f"transport {one.listener.spec.name} is closed, with"
            f" {len(one.listener.transport_context.connections)} connections"
            for one in prepared.removed
        )

        async def apply() -> None:
            await self._transports.apply(prepared)
            if any(change.key in TLS_ELEMENTS or not change.key for change in reload.changes):
                self._certificate_check.start(reload.new)

        return PreparedChange(apply, prepared.discard, tuple(remarks))


def _is_live(change: SettingChange) -> bool:
    """Return whether a transport takes a difference without being closed."""
    old = None if change.before is None else change.before.part
    new = None if change.after is None else change.after.part
    if not isinstance(old, TransportSpec) or not isinstance(new, TransportSpec):
        return False
    if change.key.partition("/")[0] in SECTIONS:
        return True
    if change.key in _LIMITS:
        return has_own_pool(old.limits) and has_own_pool(new.limits)
    return change.key in TLS_ELEMENTS and old.tls is not None and new.tls is not None


def _replaced_names(reload: ConfigurationChange) -> set[str]:
    """Return the transports of both configurations that are closed and opened anew."""
    protocols = {
        part.name
        for change in reload.changes
        for part in parts_of(change)
        if isinstance(part, ProtocolSpec)
    }
    names = {spec.name for spec in reload.new.transports if spec.protocol in protocols}
    for change in reload.changes:
        if not _is_live(change):
            names |= _transport_names(change)
    # those for SQL decide with the modules that they were made with, and by those of Admin
    interfaces = interfaces_with_other_modules(reload)
    sql_names = (transport.name for transport, _ in sql_transports(reload.new))
    return names | {name for name in sql_names if interfaces & {name, ADMIN}}


def _secured_names(reload: ConfigurationChange) -> set[str]:
    """Return the transports with other settings of TLS."""
    return {
        name
        for change in reload.changes
        if change.key in TLS_ELEMENTS
        for name in _transport_names(change)
    }


def _transport_names(change: SettingChange) -> set[str]:
    return {part.name for part in parts_of(change) if isinstance(part, TransportSpec)}
