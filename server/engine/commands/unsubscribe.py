"""unsubscribe: ends some or all subscriptions of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session


_BATCH_SIZE: Final = 20
"""Subscriptions that are ended between two checks of the clock."""


def handle(session: Session, header: Header, _body: bytes) -> CommandSteps:
    """End subscriptions (AMPS Command Reference, unsubscribe command).

    Ids without a subscription are ignored: the requested state exists already. Many subscriptions
    end one after the other, and other tasks run in between.

    Raises:
        CommandRefusedError: the command names neither subscriptions nor queries.
    """
    if not header.sub_id and not header.query_id:
        raise CommandRefusedError(
            "invalid subscription id",
            "the command names neither subscriptions (header sub_id) nor queries (query_id)",
        )
    for number, sub_id in enumerate(_ids(header.sub_id, session), 1):
        while session.detach_some_topics(sub_id):
            yield True
        session.end_subscription(sub_id)
        if number % _BATCH_SIZE == 0:
            yield True
    for number, query_id in enumerate((header.query_id or "").split(","), 1):
        session.cancel_query(query_id.strip())
        if number % _BATCH_SIZE == 0:
            yield True
    acknowledge(session, header, "processed")


def _ids(text: str | None, session: Session) -> list[str]:
    if text is None:
        return []
    if text == "all":
        return list(session.subscriptions)
    return [name.strip() for name in text.split(",")]
