"""Subscriptions, and the result sets that pages are cut from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.expressions import to_text
from server.replays.replay import Replay
from server.statistics.resources import PAGINATIONS, SUBSCRIPTIONS
from server.statistics.sample import Entry
from server.subscriptions.record_audience import RecordAudience

if TYPE_CHECKING:
    from server.core.engine import Engine
    from server.core.session import Session
    from server.subscriptions.result_set import ResultSet
    from server.subscriptions.subscription import Subscription

_NOTHING = (0, "", 0.0)
"""The moving values of a subscription that has nothing of queues, and is not read for."""


class SubscriptionsSource:
    """The subscriptions of all clients.

    Nearly all of them have no figures that change: their entries are made once.

    Args:
        engine: has their sessions.

    Attributes:
        results: the result sets that were met in the last sample, each with whose pages they are.
    """

    resource = SUBSCRIPTIONS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[int, Entry] = {}  # the entries of the last sample
        self.results: dict[ResultSet, list[Subscription]] = {}

    def entries(self) -> Iterator[Entry]:
        """See `Source.entries`."""
        earlier, self._known = self._known, {}
        self.results = {}
        for session in list(self._engine.sessions):
            for subscription in list(session.subscriptions.values()):
                entry = earlier.get(subscription.number)
                if entry is None:
                    entry = self._made(session, subscription)
                moving = self._moving(subscription)
                if moving != entry.moving:
                    entry = entry._replace(moving=moving)
                self._known[subscription.number] = entry
                yield entry

    def _moving(self, subscription: Subscription) -> tuple[int, str, float]:
        if subscription.page is not None and (results := self._results_of(subscription)):
            self.results.setdefault(results, []).append(subscription)
        consumer, replay = subscription.consumer, subscription.replay
        if isinstance(replay, Replay):
            return 0, replay.cursor, replay.seconds_behind(self._engine.clock.now())
        return _NOTHING if consumer is None else (consumer.outstanding, "", 0.0)

    def _results_of(self, subscription: Subscription) -> ResultSet | None:
        """What its page is cut from."""
        topics, message_type = self._engine.topics, subscription.subscriber.message_type
        topic = topics.find(message_type, subscription.selector.text)
        return topic.result_set(subscription) if isinstance(topic, RecordAudience) else None

    def _made(self, session: Session, subscription: Subscription) -> Entry:
        results = None if subscription.page is None else self._results_of(subscription)
        fixed = (
            subscription.bookmark or "",
            str(session.number),
            "",  # entitlement adds no filters
            "" if subscription.filter is None else to_text(subscription.filter),
            session.message_type,
            subscription.options or "",
            "" if results is None else str(results.number),
            subscription.sub_id,
            subscription.selector.text,
        )
        return Entry(str(subscription.number), fixed, _NOTHING)


class PaginationsSource:
    """The result sets that pages are cut from. It comes behind the subscriptions.

    Args:
        subscriptions: has met them.
    """

    resource = PAGINATIONS

    def __init__(self, subscriptions: SubscriptionsSource) -> None:
        self._subscriptions = subscriptions
        self._known: dict[int, tuple[str, str]] = {}

    def entries(self) -> Iterator[Entry]:
        """See `Source.entries`."""
        earlier, self._known = self._known, {}
        for results, pages in self._subscriptions.results.items():
            first = pages[0]
            made = first.subscriber.message_type, first.selector.text
            fixed = self._known[results.number] = earlier.get(results.number, made)
            yield Entry(str(results.number), fixed, (results.memory, len(pages)))
