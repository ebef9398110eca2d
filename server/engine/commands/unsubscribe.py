"""unsubscribe: ends some or all subscriptions of a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge
from server.engine.commands.context import AckRecipient
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps


_BATCH_SIZE: Final = 20
"""Subscriptions that are ended between two checks of the clock."""


class UnsubscribeSession(AckRecipient, Protocol):
    """A connection with subscriptions, and with queries in progress."""

    @property
    def subscriptions(self) -> Iterable[str]:
        """The ids of its subscriptions."""

    def loosen(self, sub_id: str) -> bool:
        """Prepare the end of a subscription a little further; return whether that takes more."""

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""

    def cancel_query(self, query_id: str) -> None:
        """Cancel the queries with this id, if any are in progress."""


def handle(session: UnsubscribeSession, header: Header, _body: bytes) -> CommandSteps:
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
        while session.loosen(sub_id):
            yield True
        session.end_subscription(sub_id)
        if number % _BATCH_SIZE == 0:
            yield True
    for number, query_id in enumerate((header.query_id or "").split(","), 1):
        session.cancel_query(query_id.strip())
        if number % _BATCH_SIZE == 0:
            yield True
    acknowledge(session, header, "processed")


def _ids(text: str | None, session: UnsubscribeSession) -> list[str]:
    if text is None:
        return []
    if text == "all":
        return list(session.subscriptions)
    return [name.strip() for name in text.split(",")]
