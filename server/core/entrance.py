"""How a connection comes in: what its transport grants to it, and the way back to its peer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.core.readings import NOTHING, Readings

if TYPE_CHECKING:
    from server.filters.base import TransportFilter
    from server.security.authentication import Authenticator
    from server.security.entitlement import Entitlement
    from server.subscriptions.slow_clients import Kept


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a transport grants to the connections that come in through it.

    Attributes:
        transport: the transport's name.
        message_type: the only message type spoken there; None when the logon chooses.
        authenticator: decides on logons.
        entitlement: decides on everything else.
        filters: see, and may change, every command before it is carried out.
        certificate_user: whom the certificate of the connection names; empty without one.
        module: the name of the module that decides on logons.
    """

    transport: str
    message_type: str | None
    authenticator: Authenticator
    entitlement: Entitlement
    filters: tuple[TransportFilter, ...] = ()
    certificate_user: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The way back to a peer, as its transport offers it.

    Attributes:
        address: the peer's address, for the log.
        send: takes bytes for the peer.
        hang_up: closes the connection once everything sent has left.
        is_behind: whether the peer has not read everything yet.
        hold: takes note of bytes that are kept in memory for the peer from now on, or of as many
            less than nothing that are kept no more. A peer for which too much is kept is cut off.
        pause: has nothing more read from the peer, until `resume`.
        resume: has the peer read again.
        look: tells how much is on its way.
        kept: tells what is kept for the peer; None if nothing is, whatever it does.
        takes_parts: whether `send` takes messages in several calls.
    """

    address: str
    send: Callable[[bytes], None]
    hang_up: Callable[[], None]
    is_behind: Callable[[], bool] = lambda: False
    hold: Callable[[int], None] = lambda _: None
    pause: Callable[[], None] = lambda: None
    resume: Callable[[], None] = lambda: None
    look: Callable[[], Readings] = lambda: NOTHING
    kept: Callable[[], Kept | None] = lambda: None
    takes_parts: bool = False
