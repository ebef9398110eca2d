"""flush: tell me when everything that I sent before has been dealt with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from server.commands.acks import acknowledge, wants
from server.commands.publish import acknowledge_stored
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Answer once all earlier commands of the connection are done.

    Commands of a connection are carried out in order, so by now they are (AMPS Command Reference,
    flush command).
    """
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack)
    if wants(header, "persisted"):
        log = session.engine.transaction_log
        acknowledge_stored(session, header, _at_once if log is None else log.when_durable)


def _at_once(then: Callable[[], None]) -> None:
    then()
