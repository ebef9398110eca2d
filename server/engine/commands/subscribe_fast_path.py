"""Fast path for subscribe commands that differ by filter: some clients send very many in series.

The effect of a subscribe command, but for its filter and its ids, follows from the fields that all
of them share: topic, options, acks. So when one has been executed by the regular path
(subscribe.py), its parsed options are kept. The next command with the same header but for ids and
filter reuses them. The entitlement to read the topic is checked each time, and all limits apply.
Commands that are not plain, or are refused other than for their filter, take the regular path.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from amperage.wire.header import MAX_NAME_LENGTH, Header
from server.engine.commands.acks import acknowledge
from server.engine.commands.memory_account import has_memory_for, memory_of, memory_of_filter
from server.engine.commands.parsing.topic_selection import read_content_filter
from server.security.permissions import Permission
from server.topics.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.engine.session import Session


@lru_cache(maxsize=1024)
def _shared_integer(number: int) -> int:
    """Return one object for equal numbers."""
    return number


class SubscribeFastPath:
    """The last plain subscribe command of one connection, as a model for those like it.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model_header: Header | None = None  # ids and filter are those of the last comparison
        self._model_subscription: Subscription | None = None
        self._memory_without_filter = 0  # of a command without its filter
        self._topics_generation = 0

    def cache_subscription(self, header: Header, subscription: Subscription) -> None:
        """Keep the result of a command, if it is a plain one.

        Args:
            header: the command's header.
            subscription: the new subscription that it has placed, which replaces no other.
        """
        is_plain = (
            header.command == "subscribe"
            and header.bookmark is None
            and not subscription.selector.is_regex
            and not subscription.tracks_focus
            and subscription.conflater is None
            and subscription.consumer is None
            and subscription.sink is None
            and subscription.presentation.select is None
        )
        if not is_plain:
            return
        model_header = copy(header)
        model_header.short_filter = model_header.long_filter = None
        self._model_header, self._model_subscription, self._memory_without_filter = (
            model_header,
            subscription,
            memory_of(model_header),
        )
        self._topics_generation = self._session.engine.topics.generation

    def try_subscribe(self, header: Header) -> Subscription | None:
        """Add the subscription that a command requests, if it is like the last one.

        The ack `received` is sent; all further acks and notices are left to the caller.

        Args:
            header: the command's header. Its connection may have one more subscription.

        Returns:
            The subscription; None if the command has to take the regular path.

        Raises:
            CommandRefusedError: the filter is invalid.
        """
        session, model_subscription = self._session, self._model_subscription
        if model_subscription is None or not self._matches_model(header):
            return None
        sub_id = header.sub_id or header.command_id
        if not sub_id or len(sub_id) > MAX_NAME_LENGTH or sub_id in session.subscriptions:
            return None
        memory_bytes = self._memory_without_filter + memory_of_filter(header.filter)
        if (
            not has_memory_for(session, memory_bytes)
            or self._topics_generation != session.engine.topics.generation
        ):
            return None
        permit = session.get_permit(Permission.READ_TOPIC, model_subscription.selector.text)
        if not permit.is_allowed:
            return None
        acknowledge(session, header, "received")
        subscription = Subscription(
            session,
            sub_id,
            model_subscription.terms,
            read_content_filter(session, header),
            _shared_integer(memory_bytes),
        )
        session.add_plain_subscription(subscription, permit)
        return subscription

    def _matches_model(self, header: Header) -> bool:
        """Return whether a header equals the last one, but for ids and filter."""
        model_header = self._model_header
        if model_header is None:
            return False
        model_header.command_id, model_header.sub_id = header.command_id, header.sub_id
        model_header.short_filter, model_header.long_filter = (
            header.short_filter,
            header.long_filter,
        )
        return header == model_header
