"""start_timer and stop_timer: old clients measure the server's response time with them.

The purpose of a timer is not documented; acks arrive in the order of the client's commands, which
is all that a measurement takes (docs/compatibility.md, Commands).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge

if TYPE_CHECKING:
    from server.engine.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Acknowledge the command."""
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack)
