"""flush: tell me when everything that I sent before has been dealt with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.acks import acknowledge
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Answer once all earlier commands of the connection are done.

    Commands of a connection are carried out in order, so by now they are (AMPS Command Reference,
    flush command).
    """
    for ack in ("processed", "completed", "persisted"):
        acknowledge(session, header, ack)
