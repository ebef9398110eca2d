"""Permits bound to the client that holds them.

The filter of a permission may call `USER()`, `CLIENT_NAME()` and the like. In other filters these
mean the publisher of the message. Here they mean the holder of the permission: otherwise a filter
for a user's own messages (`/owner = USER()`) would compare with the publisher. So these calls are
replaced by their values, once for each permit of a client, and code that uses permits does not need
to know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from server.expressions import to_text
from server.expressions.rewrite import rewrite
from server.expressions.tree import Call, Expr, Literal

if TYPE_CHECKING:
    from server.security.permissions import Permit
    from server.topics.subscriptions.client import ClientIdentity

_MAX_KEPT: Final = 1_000
"""Limit of a client's cache of permits with filters; beyond it, the cache is cleared."""


class PermitBinder:
    """Binds permits to one client, and caches the results.

    Args:
        holder: the client. Its names may change until it has logged on.
    """

    __slots__ = ("_bound", "_holder")

    def __init__(self, holder: ClientIdentity) -> None:
        self._holder: Final = holder
        self._bound: Final[dict[tuple[int, str, str, str], tuple[Permit, Permit]]] = {}

    def bind(self, permit: Permit) -> Permit:
        """Return a permit for the client; the same object if its filter needs no binding."""
        if permit.filter is None:
            return permit
        holder = self._holder
        key = id(permit), holder.user, holder.client_name, holder.client_version
        cached = self._bound.get(key)
        if cached is None:
            if len(self._bound) >= _MAX_KEPT:
                self._bound.clear()
            # Keeps the permit alive, so that its id is not used again.
            cached = self._bound[key] = permit, _bound(permit, permit.filter, holder)
        return cached[1]


def _bound(permit: Permit, expression: Expr, holder: ClientIdentity) -> Permit:
    values = {
        "USER": holder.user,
        "CLIENT_NAME": holder.client_name,
        "CLIENT_VERSION": holder.client_version,
        "CONNECTION_NAME": holder.connection_name,
        "REMOTE_ADDRESS": holder.address,
    }

    def change(node: Expr) -> Expr:
        if isinstance(node, Call) and node.name in values:
            return Literal(values[node.name] or None, position=node.position)
        return node

    bound = rewrite(expression, change)
    if bound is expression:
        return permit
    return replace(permit, filter=bound, filter_text=to_text(bound))
