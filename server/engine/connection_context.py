"""The interface of a session to its transport: the grants of the transport, and its connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.engine.socket_stats import NO_SOCKET_STATS, SocketStats

if TYPE_CHECKING:
    from server.security.authentication import LogonAuthenticator
    from server.security.entitlement import Entitlement
    from server.security.interceptors.base import TransportFilter
    from server.topics.subscriptions.limits.slow_clients import BacklogStats


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """Grants of a transport to the connections that it accepts.

    Attributes:
        transport: the transport's name.
        message_type: the only message type of the transport; None when the logon chooses.
        authenticator: decides on logons.
        entitlement: decides on everything else.
        filters: see, and may change, every command before it is executed.
        certificate_user: the user that the connection's certificate names; empty without one.
        module: the name of the module that decides on logons.
    """

    transport: str
    message_type: str | None
    authenticator: LogonAuthenticator
    entitlement: Entitlement
    filters: tuple[TransportFilter, ...] = ()
    certificate_user: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class ConnectionHandle:
    """The connection to a peer, as its transport offers it to the session.

    Attributes:
        address: the peer's address, for the log.
        send: takes bytes for the peer.
        hang_up: closes the connection once all output has been sent.
        is_behind: returns whether the peer has not read all its output yet.
        hold: charges bytes of memory to the peer, negative to release. A peer with too much memory
            charged to it is disconnected.
        pause: stops reading from the peer, until `resume`.
        resume: reads from the peer again.
        look: returns the amount of data in transit.
        kept: returns the data retained for the peer; None if its transport never retains any.
        takes_parts: whether `send` takes messages in several calls.
    """

    address: str
    send: Callable[[bytes], None]
    hang_up: Callable[[], None]
    is_behind: Callable[[], bool] = lambda: False
    hold: Callable[[int], None] = lambda _: None
    pause: Callable[[], None] = lambda: None
    resume: Callable[[], None] = lambda: None
    look: Callable[[], SocketStats] = lambda: NO_SOCKET_STATS
    kept: Callable[[], BacklogStats | None] = lambda: None
    takes_parts: bool = False
