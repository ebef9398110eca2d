"""sow_and_subscribe and sow_and_delta_subscribe: the records of a topic, and what changes after.

On a topic that keeps no records the query gives an empty group, and the subscription is like any
other (AMPS User Guide, Query and Subscribe).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands import subscribe
from server.commands.acks import acknowledge
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Query and subscribe in one step (AMPS Command Reference, sow_and_subscribe command).

    Raises:
        CommandRefused: see subscribe.
    """
    subscription = subscribe.place(session, header)
    query_id = header.query_id or header.command_id or subscription.sub_id
    keys = {"sub_id": subscription.sub_id, "query_id": query_id}
    acknowledge(session, header, "processed", **keys)
    session.send(Header(command="group_begin", query_id=query_id))
    session.send(Header(command="group_end", query_id=query_id))
    acknowledge(session, header, "completed", **keys)
    acknowledge(session, header, "stats", matches=0, topic_matches=0, records_returned=0, **keys)
