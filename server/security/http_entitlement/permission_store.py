"""Permissions of users, as long as they have connections.

A logon stores a document, then its connection enters; the document is dropped with the user's last
connection. While there are connections, a further logon changes nothing, unless permissions are
valid for a limited time: then a different document ends these connections.

Everything runs on the engine's thread.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Permissions Management and Request
Flow; Entitlement Reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.security.permission_document import PermissionDocument
    from server.security.permissions import Permission, Permit

_FIRST_CONNECTION_TIMEOUT_S: Final = 30.0
"""Seconds for which a document waits for the first connection of its user."""

_MAX_USERS: Final = 10_000
"""Limit of the cached users that other modules authenticate; beyond it, the oldest are dropped, and
requested again."""

UserReset = Callable[[str], None]
"""Ends the connections of a user on a transport, and makes all modules forget its permissions."""


@dataclass(slots=True)
class _UserEntry:
    """The permissions of a user.

    Attributes:
        document: the permissions.
        received_at: when the document was received.
        kept_until: until when it is kept without connections; a logon extends it.
        connection_count: the number of the user's connections.
        is_expiry_scheduled: whether a check for expiry is scheduled.
    """

    document: PermissionDocument
    received_at: float
    kept_until: float
    connection_count: int = 0
    is_expiry_scheduled: bool = False


class PermissionStore:
    """The permissions of users, for one or more transports.

    Attributes:
        reset_callbacks: for each of these transports, the function that ends the connections of a
            user.
    """

    def __init__(self) -> None:
        self.reset_callbacks: Final[list[UserReset]] = []
        self._entries: dict[str, _UserEntry] = {}

    def store_document(self, user: str, document: PermissionDocument, valid: float | None) -> bool:
        """Store the permissions of a user that has just been authenticated.

        Args:
            user: the user.
            document: the current document. Equal ones are the same object.
            valid: seconds for which an earlier document is valid; None for as long as the user has
                connections.

        Returns:
            Whether that ends the connections of the user.
        """
        now = asyncio.get_running_loop().time()
        entry = self._entries.get(user)
        has_changed = False
        if entry is not None and entry.connection_count and entry.document is not document:
            has_changed = valid is not None and now - entry.received_at >= valid
            if has_changed:
                for reset in self.reset_callbacks:
                    reset(user)
        if entry is None or not entry.connection_count or has_changed:
            entry = self._entries[user] = _UserEntry(document, now, now)
        entry.kept_until = now + _FIRST_CONNECTION_TIMEOUT_S
        self._schedule_expiry(user, entry)
        return has_changed

    def acquire_permissions(self, user: str) -> ConnectionPermissions | None:
        """Return the permissions of a user for a new connection; None if they are unknown."""
        entry = self._entries.get(user)
        return None if entry is None else ConnectionPermissions(self, user, entry)

    def forget(self, user: str | None) -> None:
        """Forget the permissions of a user, or of all users."""
        if user is None:
            self._entries.clear()
        else:
            self._entries.pop(user, None)

    def release_connection(self, user: str, entry: _UserEntry) -> None:
        """Release a connection that has ended."""
        entry.connection_count -= 1
        self._schedule_expiry(user, entry)

    def _schedule_expiry(self, user: str, entry: _UserEntry) -> None:
        """Drop an entry without connections, now or when its time is over."""
        if (
            entry.connection_count
            or entry.is_expiry_scheduled
            or self._entries.get(user) is not entry
        ):
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= entry.kept_until:
            del self._entries[user]
            return
        entry.is_expiry_scheduled = True
        loop.call_at(entry.kept_until, self._on_expiry, user, entry)

    def _on_expiry(self, user: str, entry: _UserEntry) -> None:
        entry.is_expiry_scheduled = False
        self._schedule_expiry(user, entry)


class HttpPermissionCache:
    """The permissions of users that other modules authenticate, until they are forgotten.

    Attributes:
        invalidation_count: the number of calls of `forget`.
    """

    def __init__(self) -> None:
        self.invalidation_count = 0
        self._documents: dict[str, PermissionDocument] = {}

    def get(self, user: str) -> PermissionDocument | None:
        """Return the permissions of a user; None if they are unknown."""
        return self._documents.get(user)

    def store(self, user: str, document: PermissionDocument, requested_at: int) -> None:
        """Store the permissions of a user.

        Args:
            user: the user.
            document: the permissions.
            requested_at: `invalidation_count` at the time of the request; an answer from before a
                reset is not stored.
        """
        if requested_at != self.invalidation_count:
            return
        self._documents[user] = document
        if len(self._documents) > _MAX_USERS:
            del self._documents[next(iter(self._documents))]

    def forget(self, user: str | None) -> None:
        """Forget the permissions of a user, or of all users."""
        self.invalidation_count += 1
        if user is None:
            self._documents.clear()
        else:
            self._documents.pop(user, None)


class ConnectionPermissions:
    """The permissions of a user on a connection."""

    def __init__(self, store: PermissionStore, user: str, entry: _UserEntry) -> None:
        self._store = store
        self._user = user
        self._entry = entry
        self._is_released = False
        entry.connection_count += 1

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        return self._entry.document.get_permit(permission, resource)

    def allows_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        return self._entry.document.allows_instance(name)

    def release(self) -> None:
        """See `Permissions`."""
        if not self._is_released:
            self._is_released = True
            self._store.release_connection(self._user, self._entry)
