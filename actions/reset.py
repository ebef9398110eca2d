"""Resets of authentication and entitlement, on any request.

A reset of authentication disconnects no client: a client that is logged on stays so (AMPS User
Guide, Manage Security, which states that for entitlement alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from server.engine.engine import Engine


_REASON: Final = "entitlement reset"


def reset_authentication(engine: Engine) -> None:
    """Discard the cached results of authentication, so that every logon is decided anew."""
    engine.security_switches.forget_logons()
    engine.log.emit("25-0002", what="authentication")


def reset_entitlement(
    engine: Engine, transport: str | None = None, user: str | None = None
) -> None:
    """Discard the cached permissions, and disconnect the affected clients.

    Args:
        engine: has the clients.
        transport: the transport of the affected clients; None for any.
        user: the user name of the affected clients; None for any, and an empty one matches none.

    Source: AMPS User Guide, Manage Security; Entitlement.
    """
    engine.security_switches.forget_permissions(transport, user)
    engine.topics.invalidate()  # disconnects affected clients below; checks others again
    scope = [f"user {user!r}"] if user is not None else []
    scope += [f"transport {transport}"] if transport is not None else []
    engine.log.emit("25-0002", what="entitlement", whose=" on ".join(scope) or None)
    for session in list(engine.sessions):
        if (
            session.is_logged_on
            and transport in (None, session.connection_context.transport)
            and (user is None or (user and user == session.user))
        ):
            session.close(_REASON)


def disconnect_users(engine: Engine, transports: Collection[str], users: Collection[str]) -> None:
    """Disconnect users whose permissions have changed, as by a reset of entitlement for each.

    Their cookies of the admin interface end.

    Args:
        engine: has the clients.
        transports: the transports of the affected clients.
        users: the user names of the affected clients.
    """
    for transport in transports:
        for user in users:
            engine.security_switches.forget_permissions(transport, user)
    engine.security_switches.sessions.end_sessions(users)
    engine.topics.invalidate()
    for session in list(engine.sessions):
        # also clients that wait for another condition before they are logged on
        if session.connection_context.transport in transports and session.user in users:
            session.close(_REASON)
