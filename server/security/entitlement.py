"""Entitlement modules: the permissions of the users of a transport.

A module is called once per logon. It returns the user's `Permissions`, which answer all further
questions, or a pending answer. Permissions are notified at the end of the connection, so that a
module may forget users without connections.

Source: AMPS User Guide, Entitlement; Provided Entitlement Modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.security.deferred import AnswerOrFuture
    from server.security.permissions import Permissions


class Entitlement(Protocol):
    """One entitlement module, configured for an instance, a transport or the admin interface."""

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:
        """Return the permissions of a user for a new connection."""

    def forget(self, user: str | None = None) -> None:
        """Forget the permissions of a user, or of all users, so that they are determined again."""


@dataclass(frozen=True, slots=True)
class FixedEntitlement:
    """Returns the same permissions for every user."""

    permissions: Permissions

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:  # noqa: ARG002 - the same for all
        """See `Entitlement`."""
        return self.permissions

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
