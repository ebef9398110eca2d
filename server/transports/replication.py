"""Connections between instances, as links see them: bytes in, bytes out.

A connection that was accepted is in the lobby until it is known who is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from server.core.lobby import Visit
from server.core.turns import LONG_READ
from server.links.link import Stage
from server.security.authentication import Credentials
from server.security.entitlement import Permission
from server.transports.assurance import shortfall
from server.transports.connection import Reception, printable_address

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.core.turns import Turns
    from server.links.link import Link
    from server.links.links import Links
    from server.subscriptions.outbox import Outboxes

_MOST_UNSENT: Final = 1 << 20
"""Bytes that the system has not taken yet, after which no batch is made."""

_LINGER_SECONDS: Final = 5.0


class ReplicationConnection(asyncio.Protocol):
    """A connection between two instances, whoever made it; a `Conduit`.

    Args:
        turns: shares out the engine's time.
        outboxes: what has been made for clients, which leaves after each read.
        begin: makes the link when there is a connection.

    Attributes:
        address: of the other end.
        is_ready: whether it has sent nearly all that it was given.
    """

    def __init__(
        self,
        turns: Turns,
        outboxes: Outboxes,
        begin: Callable[[ReplicationConnection], Link],
    ) -> None:
        self.address = ""
        self.is_ready = True
        self._turns = turns
        self._outboxes = outboxes
        self._make_link = begin
        self._transport: asyncio.Transport | None = None
        self._link: Link | None = None

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the link begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are by duck typing only
        self._transport.set_write_buffer_limits(_MOST_UNSENT)
        self.address = printable_address(transport.get_extra_info("peername"))
        self._begin()

    def _begin(self) -> None:
        self._link = self._make_link(self)

    def data_received(self, data: bytes) -> None:
        """Have it dealt with, and everybody concerned hear of it."""
        if self._link is None:
            return
        turns = self._turns
        first = len(self._outboxes.waiting)
        self._link.feed(data)
        if len(data) >= LONG_READ:
            turns.flush_while_busy()
        else:
            turns.flush(first)

    def pause_writing(self) -> None:
        """The system takes no more for now."""
        self.is_ready = False

    def resume_writing(self) -> None:
        """The system takes more."""
        self.is_ready = True
        if self._link is not None:
            self._link.is_writable()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """The other end is gone, or the link has been closed."""
        link, self._link = self._link, None
        if link is not None:
            link.lost()

    # What the link asks for.

    def send(self, *data: bytes) -> None:
        """See `Conduit`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(data)

    def pause(self) -> None:
        """See `Conduit`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """See `Conduit`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """See `Conduit`."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, transport.abort)

    def disconnect(self, reason: str) -> None:  # noqa: ARG002 - it is logged by whoever knows
        """Close the link."""
        if self._link is not None:
            self._link.close()
        else:
            self.close()


class AcceptedReplication(ReplicationConnection):
    """A connection that another instance has made.

    Args:
        reception: that of the transport.
        links: all links of this instance.
    """

    def __init__(self, reception: Reception, links: Links) -> None:
        self._reception = reception
        self._visit: Visit | None = None
        entrance = reception.entrance
        super().__init__(
            reception.engine.turns,
            reception.engine.outboxes,
            lambda conduit: links.accept(
                conduit, entrance.transport, self._refusal, self._falls_short
            ),
        )

    def turn_away(self, problem: str) -> None:
        """See `Visitor`."""
        if self._link is not None:
            self._link.refuse(problem)

    def data_received(self, data: bytes) -> None:
        """See `ReplicationConnection`."""
        super().data_received(data)
        if self._visit is not None and self._link is not None:
            if self._link.stage is Stage.GREETING:
                self._visit.keep(self._link.held)
            else:
                self._leave_lobby()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `ReplicationConnection`."""
        self._reception.connections.discard(self)
        self._leave_lobby()
        super().connection_lost(exc)

    def _begin(self) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101 - it has been made
        reception = self._reception
        held = transport.get_extra_info("socket")
        if not reception.is_open or not reception.descriptors.has_room(held.fileno()):
            transport.abort()
            return
        reception.connections.add(self)
        super()._begin()
        self._visit = Visit(reception.engine.lobby, self)

    def _leave_lobby(self) -> None:
        if self._visit is not None:
            self._visit.end()
            self._visit = None

    def _falls_short(self, destination: DestinationSpec) -> str | None:
        """Why a destination must not be sent anything over this connection; see `Demand`."""
        transport = self._transport
        context = None if transport is None else transport.get_extra_info("sslcontext")
        return shortfall(context, destination.transports)

    def _refusal(self, user: str, password: str) -> str | None:
        """Why an instance is not let in that logs on as a user; None if it is.

        Source: AMPS User Guide, Entitlement Resource and Permission Types: replication_logon.
        """
        entrance = self._reception.entrance
        admission = entrance.authenticator.authenticate(Credentials(user, password, explicit=True))
        if not admission.granted:
            return f"the logon as {user!r} is not accepted: {admission.reason}"
        if not entrance.entitlement.allows(admission.user, Permission.REPLICATION_LOGON, ""):
            return f"{user!r} is not entitled to replicate to this instance"
        return None
