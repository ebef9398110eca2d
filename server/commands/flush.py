"""flush: tell me when everything that I sent before has been dealt with."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from server.commands.acks import acknowledge, acknowledge_late, wants
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Answer once all earlier commands of the connection are done.

    Commands of a connection are carried out in order, so by now they are (AMPS Command Reference,
    flush command). What they published to topics with records is on stable storage when the ack of
    type persisted comes.
    """
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack)
    if wants(header, "persisted"):
        stores = session.engine.stores
        stores.when_stored(stores.topics, partial(acknowledge_late, session, header))
