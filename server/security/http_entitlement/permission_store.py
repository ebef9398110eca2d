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

_PATIENCE: Final = 30.0
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
        since: when the document was received.
        awaited: until when it is kept without connections; a logon extends it.
        connections: the number of the user's connections.
        is_watched: whether a check for expiry is scheduled.
    """

    document: PermissionDocument
    since: float
    awaited: float
    connections: int = 0
    is_watched: bool = False


class PermissionStore:
    """The permissions of the users of some transports.

    Attributes:
        resets: for each of these transports, the function that ends the connections of a user.
    """

    def __init__(self) -> None:
        self.resets: Final[list[UserReset]] = []
        self._entries: dict[str, _UserEntry] = {}

    def admit(self, user: str, document: PermissionDocument, valid: float | None) -> bool:
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
        if entry is not None and entry.connections and entry.document is not document:
            has_changed = valid is not None and now - entry.since >= valid
            if has_changed:
                for reset in self.resets:
                    reset(user)
        if entry is None or not entry.connections or has_changed:
            entry = self._entries[user] = _UserEntry(document, now, now)
        entry.awaited = now + _PATIENCE
        self._watch(user, entry)
        return has_changed

    def enter(self, user: str) -> ConnectionPermissions | None:
        """Return the permissions of a user for a new connection; None if they are unknown."""
        entry = self._entries.get(user)
        return None if entry is None else ConnectionPermissions(self, user, entry)

    def forget(self, user: str | None) -> None:
        """Forget the permissions of a user, or of all users."""
        if user is None:
            self._entries.clear()
        else:
            self._entries.pop(user, None)

    def release(self, user: str, entry: _UserEntry) -> None:
        """Release a connection that has ended."""
        entry.connections -= 1
        self._watch(user, entry)

    def _watch(self, user: str, entry: _UserEntry) -> None:
        """Drop an entry without connections, now or when its time is over."""
        if entry.connections or entry.is_watched or self._entries.get(user) is not entry:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= entry.awaited:
            del self._entries[user]
            return
        entry.is_watched = True
        loop.call_at(entry.awaited, self._look, user, entry)

    def _look(self, user: str, entry: _UserEntry) -> None:
        entry.is_watched = False
        self._watch(user, entry)


class HttpPermissionCache:
    """The permissions of users that other modules authenticate, until they are forgotten.

    Attributes:
        times_forgotten: the number of calls of `forget`.
    """

    def __init__(self) -> None:
        self.times_forgotten = 0
        self._documents: dict[str, PermissionDocument] = {}

    def get(self, user: str) -> PermissionDocument | None:
        """Return the permissions of a user; None if they are unknown."""
        return self._documents.get(user)

    def keep(self, user: str, document: PermissionDocument, asked_at: int) -> None:
        """Store the permissions of a user.

        Args:
            user: the user.
            document: the permissions.
            asked_at: `times_forgotten` at the time of the request; an answer from before a reset is
                not stored.
        """
        if asked_at != self.times_forgotten:
            return
        self._documents[user] = document
        if len(self._documents) > _MAX_USERS:
            del self._documents[next(iter(self._documents))]

    def forget(self, user: str | None) -> None:
        """Forget the permissions of a user, or of all users."""
        self.times_forgotten += 1
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
        self._has_left = False
        entry.connections += 1

    def permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        return self._entry.document.permit(permission, resource)

    def is_instance(self, name: str) -> bool | None:
        """See `Permissions`."""
        return self._entry.document.is_instance(name)

    def leave(self) -> None:
        """See `Permissions`."""
        if not self._has_left:
            self._has_left = True
            self._store.release(self._user, self._entry)
