"""Subscriptions to regular expressions, where there are very many topics: they begin step by step.

A subscription is attached to some topics after the other, while others have their turns; the rest
of the command is done in one go when nothing is left but the topics with records and the queues,
so that a query and the changes after it fit. What is made for the client meanwhile is sent when
the command has been answered.

A replacement is attached in one piece: it is atomic (AMPS User Guide, Replacing Subscriptions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.refusal import CommandRefused
from server.expressions.effort import TooCostlyError

if TYPE_CHECKING:
    from collections.abc import Generator

    from server.commands.subscribing import Subscribing
    from server.subscriptions.subscription import Subscription
    from server.topics.table import TopicTable


def attach_in_steps(
    session: Subscribing, subscription: Subscription, behind: list[bytes]
) -> Generator[bool, None, None]:
    """Attach a subscription that is about to be placed, if that takes long.

    Args:
        session: whose it is.
        subscription: the subscription.
        behind: gets what has to be sent after the command has been answered.

    Raises:
        CommandRefused: it takes too many steps to tell which topics it is for.
    """
    is_new = subscription.sub_id not in session.subscriptions
    if not (is_new and subscription.selector.is_regex and subscription.replay is None):
        return
    topics = session.engine.topics
    place = session.outbox.reserve()
    is_done = False
    try:
        for _ in topics.attach_in_steps(subscription):
            yield True
        is_done = True
    except TooCostlyError as error:
        raise CommandRefused("bad regex topic", str(error)) from None
    finally:
        behind += place.withdraw()
        if not is_done:
            session.engine.turns.start(_Detaching(session.client_name, topics, subscription))


class _Detaching:
    """Undoes what has been begun for a subscription that will not be placed.

    Args:
        client: the name of whose it was.
        topics: the topics.
        subscription: the subscription.
    """

    def __init__(self, client: str, topics: TopicTable, subscription: Subscription) -> None:
        self._client = client
        self._topics = topics
        self._subscription = subscription

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return self._client, "subscribe"

    def step(self) -> bool:
        """See `Sliced.step`."""
        if self._topics.detach_some(self._subscription):
            return True
        self._topics.unsubscribe(self._subscription)
        return False
