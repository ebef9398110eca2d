"""The permissions of visitors of the admin interface, which have no lasting connections.

A visitor that has sent no request for a while is considered gone: a module may bind its knowledge
of a user to the user's presence. Used on the engine's thread, as all modules are.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.deferred import mapped
from server.security.permissions import UNKNOWN_USER_PERMIT, Permission

if TYPE_CHECKING:
    from server.security.deferred import AnswerOrFuture
    from server.security.entitlement import Entitlement
    from server.security.permissions import Permissions

_MAX_USERS: Final = 1_000
"""Beyond that, the user that has been idle for longest is evicted, and asked for again."""

_IDLE_SECONDS: Final = 60.0
"""The idle time after which a visitor is considered gone."""


@dataclass(slots=True)
class _PermissionEntry:
    """A visitor's permissions, and the time of their last request."""

    permissions: Permissions
    seen: float


class AdminPermissionCache:
    """Caches the permissions of present users.

    Args:
        entitlement: is asked for permissions that are not cached.
        idle: seconds after which a visitor is considered gone.

    Attributes:
        times_forgotten: how often permissions were invalidated.
    """

    def __init__(self, entitlement: Entitlement, idle: float = _IDLE_SECONDS) -> None:
        self.times_forgotten = 0
        self._entitlement = entitlement
        self._idle = idle
        self._known: OrderedDict[str, _PermissionEntry] = OrderedDict()
        self._is_watched = False

    def find(self, user: str) -> AnswerOrFuture[Permissions]:
        """Return the permissions of a user."""
        known = self._known.get(user)
        if known is not None:
            known.seen = asyncio.get_running_loop().time()
            self._known.move_to_end(user)
            return known.permissions
        return mapped(
            self._entitlement.enter(user), lambda permissions: self._keep(user, permissions)
        )

    def forget(self, user: str | None = None) -> None:
        """Invalidate the permissions of a user, or of all users."""
        self.times_forgotten += 1
        for gone in [user] if user is not None else list(self._known):
            visitor = self._known.pop(gone, None)
            if visitor is not None:
                visitor.permissions.leave()
        self._entitlement.forget(user)

    def _keep(self, user: str, permissions: Permissions) -> Permissions:
        if permissions.permit(Permission.READ_ADMIN, "") is UNKNOWN_USER_PERMIT:
            return permissions  # not cached: the module learns them at the user's next logon
        before = self._known.pop(user, None)
        if before is not None:  # two requests have asked at the same time
            before.permissions.leave()
        self._known[user] = _PermissionEntry(permissions, asyncio.get_running_loop().time())
        if len(self._known) > _MAX_USERS:
            self._known.popitem(last=False)[1].permissions.leave()
        self._watch()
        return permissions

    def _watch(self) -> None:
        if self._known and not self._is_watched:
            self._is_watched = True
            first = next(iter(self._known.values()))
            asyncio.get_running_loop().call_at(first.seen + self._idle, self._let_go)

    def _let_go(self) -> None:
        """Release the permissions of idle visitors."""
        self._is_watched = False
        now = asyncio.get_running_loop().time()
        while self._known and next(iter(self._known.values())).seen + self._idle <= now:
            self._known.popitem(last=False)[1].permissions.leave()
        self._watch()
