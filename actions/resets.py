"""Resets of authentication and entitlement, whoever asks for them.

None of the authentication modules that exist keeps anything. Nobody is disconnected by a reset of
authentication: whoever has logged on stays so (AMPS User Guide, Manage Security, which says that of
entitlement alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actions.services import Engine

_REASON: Final = "entitlement reset"


def reset_authentication(engine: Engine) -> None:
    """Have every logon decided afresh."""
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
