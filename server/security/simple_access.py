"""libamps_simple_access_entitlement: permissions by names of topics and paths, equal for all users.

Logons are not restricted.

Source: AMPS User Guide, Simple Access Entitlements Module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.regex import decide
from server.security.entitlement import FixedEntitlement
from server.security.permissions import Permission, Permit, undecided

if TYPE_CHECKING:
    from config_schema.spec import Options
    from server.security.entitlement import Entitlement

LIBRARY: Final = "libamps_simple_access_entitlement.so"

_READING: Final = (Permission.READ_TOPIC, Permission.READ_ADMIN)
_LOGONS: Final = (Permission.LOGON, Permission.REPLICATION_LOGON)


@dataclass(frozen=True, slots=True)
class SimpleAccess:
    """The permissions of all users.

    Attributes:
        allowed: matches the names of allowed resources.
        denied: matches the names of denied resources, with precedence; None for none.
        granted: `read`, `write`, or empty for both.
    """

    allowed: str
    denied: str | None
    granted: str

    def permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        if permission in _LOGONS:
            return Permit(True, rule="logons are always allowed")
        if self.denied is not None:
            is_denied = decide(self.denied, resource)
            if is_denied is None:
                return undecided(self.denied, "DeniedTopics")
            if is_denied:
                return Permit(False, rule=f"DeniedTopics {self.denied} matches it")
        is_allowed = decide(self.allowed, resource)
        if is_allowed is None:
            return undecided(self.allowed, "AllowedTopics")
        if not is_allowed:
            return Permit(False, rule=f"AllowedTopics {self.allowed} does not match it")
        wanted = "read" if permission in _READING else "write"
        if self.granted not in ("", wanted):
            return Permit(False, rule=f"GrantedPermissions is {self.granted}")
        return Permit(True, rule=f"AllowedTopics {self.allowed} matches it")

    def is_instance(self, name: str) -> bool | None:  # noqa: ARG002 - no rule lists instances
        """See `Permissions`."""
        return None

    def leave(self) -> None:
        """See `Permissions`."""


def simple_access(options: Options) -> Entitlement:
    """Make the module."""
    granted = (options.get("GrantedPermissions") or "").strip().lower()
    return FixedEntitlement(
        SimpleAccess(options.get("AllowedTopics") or ".*", options.get("DeniedTopics"), granted)
    )
