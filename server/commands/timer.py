"""start_timer and stop_timer: old clients measure with them how long the server takes.

What a timer is for is nowhere documented; the acks that a client waits for come in the order of its
commands, which is what it takes to measure (docs/compatibility.md, Commands).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amperage.wire.header import Header
from server.commands.acks import acknowledge

if TYPE_CHECKING:
    from server.commands.sender import Answered


def handle(session: Answered, header: Header, _body: bytes) -> None:
    """Acknowledge the command."""
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack)
