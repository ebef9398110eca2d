"""The permissions of requesters of the admin interface, which have no lasting connections.

A requester that has sent no request for a while is considered gone: a module may bind its knowledge
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
"""Beyond that, the user that has been idle for longest is evicted, and looked up again."""

_IDLE_SECONDS: Final = 60.0
"""The idle time after which a requester is considered gone."""


@dataclass(slots=True)
class _PermissionEntry:
    """A requester's permissions, and the time of their last request."""

    permissions: Permissions
    last_used_s: float


class AdminPermissionCache:
    """Caches the permissions of present users.

    Args:
        entitlement: provides permissions that are not cached.
        idle_timeout_s: seconds after which a requester is considered gone.

    Attributes:
        invalidation_count: how often permissions were invalidated.
    """

    def __init__(self, entitlement: Entitlement, idle_timeout_s: float = _IDLE_SECONDS) -> None:
        self.invalidation_count = 0
        self._entitlement = entitlement
        self._idle_timeout_s = idle_timeout_s
        self._entries: OrderedDict[str, _PermissionEntry] = OrderedDict()
        self._is_expiry_scheduled = False

    def find(self, user: str) -> AnswerOrFuture[Permissions]:
        """Return the permissions of a user."""
        entry = self._entries.get(user)
        if entry is not None:
            entry.last_used_s = asyncio.get_running_loop().time()
            self._entries.move_to_end(user)
            return entry.permissions
        return mapped(
            self._entitlement.acquire_permissions(user),
            lambda permissions: self._store(user, permissions),
        )

    def forget(self, user: str | None = None) -> None:
        """Invalidate the permissions of a user, or of all users."""
        self.invalidation_count += 1
        for name in [user] if user is not None else list(self._entries):
            entry = self._entries.pop(name, None)
            if entry is not None:
                entry.permissions.release()
        self._entitlement.forget(user)

    def _store(self, user: str, permissions: Permissions) -> Permissions:
        if permissions.get_permit(Permission.READ_ADMIN, "") is UNKNOWN_USER_PERMIT:
            return permissions  # not cached: the module learns them at the user's next logon
        previous = self._entries.pop(user, None)
        if previous is not None:  # two requests at the same time
            previous.permissions.release()
        self._entries[user] = _PermissionEntry(permissions, asyncio.get_running_loop().time())
        if len(self._entries) > _MAX_USERS:
            self._entries.popitem(last=False)[1].permissions.release()
        self._schedule_expiry()
        return permissions

    def _schedule_expiry(self) -> None:
        if self._entries and not self._is_expiry_scheduled:
            self._is_expiry_scheduled = True
            first = next(iter(self._entries.values()))
            asyncio.get_running_loop().call_at(
                first.last_used_s + self._idle_timeout_s, self._expire_idle
            )

    def _expire_idle(self) -> None:
        """Release the permissions of idle requesters."""
        self._is_expiry_scheduled = False
        now = asyncio.get_running_loop().time()
        while (
            self._entries
            and next(iter(self._entries.values())).last_used_s + self._idle_timeout_s <= now
        ):
            self._entries.popitem(last=False)[1].permissions.release()
        self._schedule_expiry()
