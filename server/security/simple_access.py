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
        allowed_pattern: matches the names of allowed resources.
        denied_pattern: matches the names of denied resources, with precedence; None for none.
        granted_access: `read`, `write`, or empty for both.
    """

    allowed_pattern: str
    denied_pattern: str | None
    granted_access: str

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        if permission in _LOGONS:
            return Permit(True, rule="logons are always allowed")
        if self.denied_pattern is not None:
            is_denied = decide(self.denied_pattern, resource)
            if is_denied is None:
                return undecided(self.denied_pattern, "DeniedTopics")
            if is_denied:
                return Permit(False, rule=f"DeniedTopics {self.denied_pattern} matches it")
        is_allowed = decide(self.allowed_pattern, resource)
        if is_allowed is None:
            return undecided(self.allowed_pattern, "AllowedTopics")
        if not is_allowed:
            return Permit(False, rule=f"AllowedTopics {self.allowed_pattern} does not match it")
        access = "read" if permission in _READING else "write"
        if self.granted_access not in ("", access):
            return Permit(False, rule=f"GrantedPermissions is {self.granted_access}")
        return Permit(True, rule=f"AllowedTopics {self.allowed_pattern} matches it")

    def allows_instance(self, name: str) -> bool | None:  # noqa: ARG002 - no rule lists instances
        """See `Permissions`."""
        return None

    def release(self) -> None:
        """See `Permissions`."""


def simple_access(options: Options) -> Entitlement:
    """Make the module."""
    granted = (options.get("GrantedPermissions") or "").strip().lower()
    return FixedEntitlement(
        SimpleAccess(options.get("AllowedTopics") or ".*", options.get("DeniedTopics"), granted)
    )
