"""Authentication and entitlement, switched off and on while an instance runs.

The modules that a transport was configured with stay what they are; these stand before them.
With authentication switched off, logons are decided by the default module, which vouches for no
user name. Source: AMPS User Guide, Manage Security.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.authentication import make_authenticator

if TYPE_CHECKING:
    from server.security.authentication import Admission, Authenticator, Credentials
    from server.security.entitlement import Entitlement, Permission

_OPEN: Final = make_authenticator(None)


@dataclass(slots=True)
class Switches:
    """Which of the two is on, for all transports of an instance."""

    authentication: bool = True
    entitlement: bool = True


@dataclass(frozen=True, slots=True)
class SwitchedAuthenticator:
    """Asks a module while authentication is on."""

    module: Authenticator
    switches: Switches

    def authenticate(self, credentials: Credentials) -> Admission:
        """Decide on a logon."""
        deciding = self.module if self.switches.authentication else _OPEN
        return deciding.authenticate(credentials)


@dataclass(frozen=True, slots=True)
class SwitchedEntitlement:
    """Asks a module while entitlement is on."""

    module: Entitlement
    switches: Switches

    def allows(self, user: str, permission: Permission, resource: str) -> bool:
        """Whether a user may do something with a topic (the resource is empty for logons)."""
        return not self.switches.entitlement or self.module.allows(user, permission, resource)
