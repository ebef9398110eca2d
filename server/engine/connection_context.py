"""The interface of a session to its transport: the grants of the transport, and its connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.engine.socket_stats import NO_SOCKET_STATS, SocketStats

if TYPE_CHECKING:
    from amperage.wire.frame_slices import SharedFrames
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
        transport_filters: see, and may change, every command before it is executed.
        certificate_user: the user that the connection's certificate names; empty without one.
        auth_module: the name of the module that decides on logons.
    """

    transport: str
    message_type: str | None
    authenticator: LogonAuthenticator
    entitlement: Entitlement
    transport_filters: tuple[TransportFilter, ...] = ()
    certificate_user: str = ""
    auth_module: str = ""


@dataclass(frozen=True, slots=True)
class ConnectionHandle:
    """The connection to a peer, as its transport offers it to the session.

    Attributes:
        address: the peer's address, for the log.
        send: takes bytes for the peer.
        close_after_flush: closes the connection once all output has been sent.
        is_behind: returns whether the peer has not read all its output yet.
        charge_memory: charges bytes of memory to the peer, negative to release. A peer with too
            much memory charged to it is disconnected.
        pause_reading: stops reading from the peer, until `resume_reading`.
        resume_reading: reads from the peer again.
        read_socket_stats: returns the amount of data in transit.
        read_backlog_stats: returns the data retained for the peer; None if its transport never
            retains any.
        takes_parts: whether `send` takes messages in several calls.
        send_shared: the same as `send` for frames that refer to their bodies; None if they have to
            be copied.
    """

    address: str
    send: Callable[[bytes], None]
    close_after_flush: Callable[[], None]
    is_behind: Callable[[], bool] = lambda: False
    charge_memory: Callable[[int], None] = lambda _: None
    pause_reading: Callable[[], None] = lambda: None
    resume_reading: Callable[[], None] = lambda: None
    read_socket_stats: Callable[[], SocketStats] = lambda: NO_SOCKET_STATS
    read_backlog_stats: Callable[[], BacklogStats | None] = lambda: None
    takes_parts: bool = False
    send_shared: Callable[[SharedFrames], None] | None = None
