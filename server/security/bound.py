"""Permits bound to who has them.

The filter of a permission may ask `USER()`, `CLIENT_NAME()` and the like. There these mean whoever
the permission is for, and not, as they do in other filters, whoever published the message: "what is
theirs" (`/owner = USER()`) would else be theirs who wrote it. So these calls are replaced by what
they come to, once for each permit of a client, and what is done with permits knows nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from server.expressions import to_text
from server.expressions.rewriting import rewrite
from server.expressions.tree import Call, Expr, Literal

if TYPE_CHECKING:
    from server.security.permissions import Permit

_MOST_KEPT: Final = 1_000
"""Permits with filters that are kept for a client; of more, all are bound again."""


class Holder(Protocol):
    """Who has a permit; the attributes are those of a session."""

    user: str
    client_name: str
    client_version: str
    connection_name: str
    address: str


class BoundPermits:
    """The permits of one client, bound to it.

    Args:
        holder: the client. Who it is may change until it has logged on.
    """

    __slots__ = ("_bound", "_holder")

    def __init__(self, holder: Holder) -> None:
        self._holder: Final = holder
        self._bound: Final[dict[tuple[int, str, str, str], tuple[Permit, Permit]]] = {}

    def bind(self, permit: Permit) -> Permit:
        """A permit as it is for the client; itself, if its filter asks nothing about that."""
        if permit.filter is None:
            return permit
        holder = self._holder
        key = id(permit), holder.user, holder.client_name, holder.client_version
        known = self._bound.get(key)
        if known is None:
            if len(self._bound) >= _MOST_KEPT:
                self._bound.clear()
            # With the permit itself, which nothing else then has the id of.
            known = self._bound[key] = permit, _bound(permit, permit.filter, holder)
        return known[1]


def _bound(permit: Permit, found: Expr, holder: Holder) -> Permit:
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

    bound = rewrite(found, change)
    if bound is found:
        return permit
    return replace(permit, filter=bound, filter_text=to_text(bound))
