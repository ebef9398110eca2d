"""unsubscribe: no more messages for some or all subscriptions of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.acks import acknowledge
from server.commands.refusal import CommandRefused
from server.wire.header import Header

if TYPE_CHECKING:
    from server.core.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """End subscriptions (AMPS Command Reference, unsubscribe command).

    Ids that the connection has no subscription for are passed over: what was asked for is the case.

    Raises:
        CommandRefused: neither subscriptions nor queries are named.
    """
    if not header.sub_id and not header.query_id:
        raise CommandRefused(
            "invalid subscription id",
            "the command names neither subscriptions (header sub_id) nor queries (query_id)",
        )
    for sub_id in _ids(header.sub_id, session):
        session.end_subscription(sub_id)
    for query_id in (header.query_id or "").split(","):
        session.cancel_query(query_id.strip())
    acknowledge(session, header, "processed")


def _ids(text: str | None, session: Session) -> list[str]:
    if text is None:
        return []
    if text == "all":
        return list(session.subscriptions)
    return [name.strip() for name in text.split(",")]
