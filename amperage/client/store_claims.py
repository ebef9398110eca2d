"""Ensures that only one client at a time uses a store, since a store has one number sequence."""

from __future__ import annotations

import weakref
from typing import Final

_claims: Final[dict[int, weakref.ref[object]]] = {}
"""The connected clients, by the `id()` of their stores."""


def claim_stores(client: object, **stores: object) -> None:
    """Reserve stores for a client that connects, until `release_stores`.

    Args:
        client: the client.
        stores: its stores, by the names of the client's arguments.

    Raises:
        ValueError: another client uses one of them.
    """
    for key in [key for key, claim in _claims.items() if claim() is None]:
        del _claims[key]
    for name, store in stores.items():
        claim = _claims.get(id(store))
        other = None if claim is None else claim()
        if other is not None and other is not client:
            raise ValueError(
                f"{name}: {other!r} is using this store; each client needs one of its own, and"
                " can take over that of a client that is closed"
            )
    for store in stores.values():
        _claims[id(store)] = weakref.ref(client)


def release_stores(client: object, *stores: object) -> None:
    """Release the stores that a client has reserved, so that other clients can use them."""
    for store in stores:
        claim = _claims.get(id(store))
        if claim is not None and claim() is client:
            del _claims[id(store)]
