"""Entitlement modules: what the users of a transport may do.

A module is asked once per logon. It says what the user may do (`Permissions`), which is asked from
then on, or that this will take a while. Permissions are told when the connection has ended: a
module may forget users who have gone.

Source: AMPS User Guide, Entitlement; Provided Entitlement Modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.security.later import Later
    from server.security.permissions import Permissions


class Entitlement(Protocol):
    """One entitlement module, configured for an instance, a transport or the admin interface."""

    def enter(self, user: str) -> Later[Permissions]:
        """What a user may do who comes in."""

    def forget(self, user: str | None = None) -> None:
        """Find out anew what a user may do, or everybody."""


@dataclass(frozen=True, slots=True)
class FixedEntitlement:
    """Says the same to everybody."""

    permissions: Permissions

    def enter(self, user: str) -> Later[Permissions]:  # noqa: ARG002 - the same for all
        """See `Entitlement`."""
        return self.permissions

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
