"""What visitors of the admin interface may see: they have no connections that stay.

A visitor who has not asked for anything for a while has gone: what a module knows of a user may be
bound to their presence. Used on the engine's thread, as all modules are.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.later import mapped
from server.security.permissions import STRANGER, Permission

if TYPE_CHECKING:
    from server.security.entitlement import Entitlement
    from server.security.later import Later
    from server.security.permissions import Permissions

_MOST_USERS: Final = 1_000
"""Of more, the one is asked for again that has not been here for longest."""

_IDLE_SECONDS: Final = 60.0
"""After how long a visitor has gone."""


@dataclass(slots=True)
class _Visitor:
    """What somebody may see, and when they were here last."""

    permissions: Permissions
    seen: float


class VisitorPermissions:
    """Keeps what users may see who are here.

    Args:
        entitlement: is asked for what it does not have.
        idle: seconds after which somebody has gone.

    Attributes:
        times_forgotten: how often it was to be found out anew what users may see.
    """

    def __init__(self, entitlement: Entitlement, idle: float = _IDLE_SECONDS) -> None:
        self.times_forgotten = 0
        self._entitlement = entitlement
        self._idle = idle
        self._known: OrderedDict[str, _Visitor] = OrderedDict()
        self._is_watched = False

    def find(self, user: str) -> Later[Permissions]:
        """What a user may see."""
        known = self._known.get(user)
        if known is not None:
            known.seen = asyncio.get_running_loop().time()
            self._known.move_to_end(user)
            return known.permissions
        return mapped(
            self._entitlement.enter(user), lambda permissions: self._keep(user, permissions)
        )

    def forget(self, user: str | None = None) -> None:
        """Ask anew what a user may see, or everybody."""
        self.times_forgotten += 1
        for gone in [user] if user is not None else list(self._known):
            visitor = self._known.pop(gone, None)
            if visitor is not None:
                visitor.permissions.leave()
        self._entitlement.forget(user)

    def _keep(self, user: str, permissions: Permissions) -> Permissions:
        if permissions.permit(Permission.READ_ADMIN, "") is STRANGER:
            return permissions  # until their next logon
        before = self._known.pop(user, None)
        if before is not None:  # asked for twice at a time
            before.permissions.leave()
        self._known[user] = _Visitor(permissions, asyncio.get_running_loop().time())
        if len(self._known) > _MOST_USERS:
            self._known.popitem(last=False)[1].permissions.leave()
        self._watch()
        return permissions

    def _watch(self) -> None:
        if self._known and not self._is_watched:
            self._is_watched = True
            first = next(iter(self._known.values()))
            asyncio.get_running_loop().call_at(first.seen + self._idle, self._let_go)

    def _let_go(self) -> None:
        """Let go of those who have not been here for a while."""
        self._is_watched = False
        now = asyncio.get_running_loop().time()
        while self._known and next(iter(self._known.values())).seen + self._idle <= now:
            self._known.popitem(last=False)[1].permissions.leave()
        self._watch()
