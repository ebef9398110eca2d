"""What has been found out about users, as long as they are there.

A document comes with a logon, which is followed by the user's entering; with the user's last
connection it goes. While there are connections a further logon changes nothing, unless permissions
are valid for a limited time: then a different document ends these connections.

Everything happens on the engine's thread.

Source: AMPS User Guide, RESTful Authentication and Entitlements, Permissions Management and Request
Flow; Entitlement Reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.security.documents import PermissionDocument
    from server.security.permissions import Permission, Permit

_PATIENCE: Final = 30.0
"""Seconds for which a document waits for its user to enter."""

_MOST_USERS: Final = 10_000
"""Users that are remembered who are authenticated by others; of more, those go first that have been
there for longest, and are asked for again."""

Reset = Callable[[str], None]
"""Ends the connections of a user on a transport, and has everybody forget what they may do."""


@dataclass(slots=True)
class _Entry:
    """What is known of a user.

    Attributes:
        document: what they may do.
        since: when that has been found.
        awaited: until when the user is waited for; a logon puts it off.
        connections: how many they have.
        is_watched: whether it is going to be looked whether they have come.
    """

    document: PermissionDocument
    since: float
    awaited: float
    connections: int = 0
    is_watched: bool = False


class CredentialStore:
    """The permissions of the users of some transports.

    Attributes:
        resets: for each of these transports, what ends the connections of a user.
    """

    def __init__(self) -> None:
        self.resets: Final[list[Reset]] = []
        self._entries: dict[str, _Entry] = {}

    def admit(self, user: str, document: PermissionDocument, valid: float | None) -> bool:
        """Take note of what a user may do who has just been authenticated.

        Args:
            user: the user.
            document: what the service says of them now. Equal ones are the same object.
            valid: seconds for which what was said before is valid; None for as long as the user has
                connections.

        Returns:
            Whether that ends the connections that they have.
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
            entry = self._entries[user] = _Entry(document, now, now)
        entry.awaited = now + _PATIENCE
        self._watch(user, entry)
        return has_changed

    def enter(self, user: str) -> Entered | None:
        """What a user may do who comes in; None if nothing is known of them."""
        entry = self._entries.get(user)
        return None if entry is None else Entered(self, user, entry)

    def forget(self, user: str | None) -> None:
        """Know nothing any more of a user, or of anybody."""
        if user is None:
            self._entries.clear()
        else:
            self._entries.pop(user, None)

    def release(self, user: str, entry: _Entry) -> None:
        """A connection has ended."""
        entry.connections -= 1
        self._watch(user, entry)

    def _watch(self, user: str, entry: _Entry) -> None:
        """Forget a user without connections, if nobody waits for them."""
        if entry.connections or entry.is_watched or self._entries.get(user) is not entry:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= entry.awaited:
            del self._entries[user]
            return
        entry.is_watched = True
        loop.call_at(entry.awaited, self._look, user, entry)

    def _look(self, user: str, entry: _Entry) -> None:
        entry.is_watched = False
        self._watch(user, entry)


class FoundUsers:
    """What is known of users whom others authenticate: it lasts until it is forgotten.

    Attributes:
        times_forgotten: how often anything has been.
    """

    def __init__(self) -> None:
        self.times_forgotten = 0
        self._documents: dict[str, PermissionDocument] = {}

    def get(self, user: str) -> PermissionDocument | None:
        """What a user may do; None if that is not known."""
        return self._documents.get(user)

    def keep(self, user: str, document: PermissionDocument, asked_at: int) -> None:
        """Take note of what a user may do.

        Args:
            user: the user.
            document: what has been found.
            asked_at: `times_forgotten` when it was asked for; what is older than a reset is not
                kept.
        """
        if asked_at != self.times_forgotten:
            return
        self._documents[user] = document
        if len(self._documents) > _MOST_USERS:
            del self._documents[next(iter(self._documents))]

    def forget(self, user: str | None) -> None:
        """Know nothing any more of a user, or of anybody."""
        self.times_forgotten += 1
        if user is None:
            self._documents.clear()
        else:
            self._documents.pop(user, None)


class Entered:
    """What a user may do on a connection."""

    def __init__(self, store: CredentialStore, user: str, entry: _Entry) -> None:
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
