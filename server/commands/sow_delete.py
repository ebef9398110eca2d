"""sow_delete: records leave a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.refusal import CommandRefused
from server.security.entitlement import Permission
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Delete records (AMPS Command Reference, Removing Messages).

    Raises:
        CommandRefused: the topic keeps no records.
    """
    topic = header.topic or ""
    session.require(Permission.WRITE_TOPIC, topic)
    raise CommandRefused("invalid topic", f"topic {topic!r} keeps no records that could be deleted")
