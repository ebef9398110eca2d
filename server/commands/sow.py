"""sow: the records of a topic.

No topic keeps records yet, so there is nothing to query; the hook for those that will is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.refusal import CommandRefused
from server.security.entitlement import Permission
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Query records (AMPS Command Reference, sow command).

    Raises:
        CommandRefused: the topic keeps no records.
    """
    topic = header.topic or ""
    session.require(Permission.READ_TOPIC, topic)
    raise CommandRefused("invalid topic", f"topic {topic!r} keeps no records that could be queried")
