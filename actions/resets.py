"""Resets of authentication and entitlement, whoever asks for them.

Nobody is disconnected by a reset of authentication: whoever has logged on stays so (AMPS User
Guide, Manage Security, which says that of entitlement alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from actions.services import Engine

_REASON: Final = "entitlement reset"


def reset_authentication(engine: Engine) -> None:
    """Have every logon decided afresh."""
    engine.switches.forget_logons()
    engine.log.emit("25-0002", what="authentication")


def reset_entitlement(
    engine: Engine, transport: str | None = None, user: str | None = None
) -> None:
    """Have every permission asked for afresh, and disconnect whom that concerns.

    Args:
        engine: has the clients.
        transport: of those concerned; None for any.
        user: as whom they have logged on; None for anybody, and an empty one is nobody's.

    Source: AMPS User Guide, Manage Security; Entitlement.
    """
    engine.switches.forget_permissions(transport, user)
    engine.topics.invalidate()  # who is concerned goes; others are asked for once more
    whose = [f"user {user!r}"] if user is not None else []
    whose += [f"transport {transport}"] if transport is not None else []
    engine.log.emit("25-0002", what="entitlement", whose=" on ".join(whose) or None)
    for session in list(engine.sessions):
        if (
            session.logged_on
            and transport in (None, session.entrance.transport)
            and (user is None or (user and user == session.user))
        ):
            session.close(_REASON)


def disconnect_users(engine: Engine, transports: Collection[str], users: Collection[str]) -> None:
    """Disconnect users whose permissions are others now, as by a reset of entitlement for each.

    Their cookies of the admin interface end.

    Args:
        engine: has the clients.
        transports: of those concerned.
        users: as whom they have logged on.
    """
    for transport in transports:
        for user in users:
            engine.switches.forget_permissions(transport, user)
    engine.switches.sessions.end(users)
    engine.topics.invalidate()
    for session in list(engine.sessions):
        # also those that wait for something else before they are logged on
        if session.entrance.transport in transports and session.user in users:
            session.close(_REASON)
