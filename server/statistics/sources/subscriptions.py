"""Subscriptions, and the result sets that their pages are parts of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from server.engine.replays.replay import Replay
from server.expressions import to_text
from server.security.permissions import Permission
from server.statistics.resources import PAGINATIONS, SUBSCRIPTIONS
from server.statistics.sample import StatisticsEntry
from server.topics.subscriptions.record_fanout import RecordFanout

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.topics.subscriptions.paging.result_set import ResultSet
    from server.topics.subscriptions.subscription import Subscription

_NOTHING: Final = (0, "", 0.0)
"""The moving values of a subscription without queue messages and without a replay."""

_BATCH_SIZE: Final = 64
"""Subscriptions per time slice when entries are created: a microsecond each."""


class _ClientEntries:
    """The subscriptions of one client in a sample.

    Args:
        session: the client.

    Attributes:
        made: a value that changes with the set of subscriptions; see `_made`.
        still: the entries of those that never change, in batches.
        moving: the others, with their entries.
    """

    def __init__(self, session: Session) -> None:
        self.made = _made(session)
        self.still: list[list[StatisticsEntry]] = []
        self.moving: dict[Subscription, StatisticsEntry] = {}


def _made(session: Session) -> tuple[int, int]:
    """Return a value that is constant as long as a client has the same subscriptions."""
    return session.subscriptions_placed, len(session.subscriptions)


class SubscriptionsSource:
    """The subscriptions of all clients.

    Nearly all of them have no figures that change: their entries are created once, and are reused
    as a batch as long as their client begins and ends no subscription.

    Args:
        engine: has their sessions.

    Attributes:
        results: the result sets seen in the last sample, each with the subscriptions of its pages.
    """

    resource = SUBSCRIPTIONS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Those of the last sample, by number of the session.
        self._known: dict[int, _ClientEntries] = {}
        self.results: dict[ResultSet, list[Subscription]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        return chain.from_iterable(self._portions())

    def _portions(self) -> Iterator[list[StatisticsEntry]]:
        earlier, self._known = self._known, {}
        self.results = {}
        for session in list(self._engine.sessions):
            block = earlier.get(session.number)
            if block is not None and block.made == _made(session):
                self._known[session.number] = block
                yield from block.still
                for subscription, entry in block.moving.items():
                    moved = self._moved(subscription, entry)
                    block.moving[subscription] = moved
                    yield [moved]
            elif session.subscriptions:
                yield from self._make(session, block)

    def _make(
        self, session: Session, before: _ClientEntries | None
    ) -> Iterator[list[StatisticsEntry]]:
        """Create the entries of a client after a change of its subscriptions."""
        block = _ClientEntries(session)
        known = {} if before is None else _by_id(before)
        subscriptions = list(session.subscriptions.values())
        for first in range(0, len(subscriptions), _BATCH_SIZE):
            still: list[StatisticsEntry] = []
            for subscription in subscriptions[first : first + _BATCH_SIZE]:
                entry = known.get(str(subscription.number)) or self._made(session, subscription)
                if _never_changes(subscription):
                    still.append(entry)
                else:
                    block.moving[subscription] = self._moved(subscription, entry)
            block.still.append(still)
            yield still
        yield from ([entry] for entry in block.moving.values())
        self._known[session.number] = block

    def _moved(self, subscription: Subscription, entry: StatisticsEntry) -> StatisticsEntry:
        """Return the entry of a subscription that may have changed."""
        moving = self._moving(subscription)
        return entry if moving == entry.moving else entry._replace(moving=moving)

    def _moving(self, subscription: Subscription) -> tuple[int, str, float]:
        if subscription.page is not None and (results := self._results_of(subscription)):
            self.results.setdefault(results, []).append(subscription)
        consumer, replay = subscription.consumer, subscription.replay
        if isinstance(replay, Replay):
            return 0, replay.cursor, replay.seconds_behind(self._engine.clock.now())
        return _NOTHING if consumer is None else (consumer.outstanding, "", 0.0)

    def _results_of(self, subscription: Subscription) -> ResultSet | None:
        """Return the result set of its page."""
        topics, message_type = self._engine.topics, subscription.subscriber.message_type
        topic = topics.find(message_type, subscription.selector.text)
        return topic.result_set(subscription) if isinstance(topic, RecordFanout) else None

    def _made(self, session: Session, subscription: Subscription) -> StatisticsEntry:
        results = None if subscription.page is None else self._results_of(subscription)
        fixed = (
            subscription.bookmark or "",
            str(session.number),
            _entitlement_filter(session, subscription),
            "" if subscription.filter is None else to_text(subscription.filter),
            session.message_type,
            subscription.options or "",
            "" if results is None else str(results.number),
            subscription.sub_id,
            subscription.selector.text,
        )
        return StatisticsEntry(str(subscription.number), fixed, _NOTHING)


def _entitlement_filter(session: Session, subscription: Subscription) -> str:
    """Return the filter that entitlement adds; empty for a regular expression, where it differs."""
    selector = subscription.selector
    if selector.is_regex:
        return ""
    return session.permit(Permission.READ_TOPIC, selector.text).filter_text


def _by_id(block: _ClientEntries) -> dict[str, StatisticsEntry]:
    entries = chain(chain.from_iterable(block.still), block.moving.values())
    return {entry.id: entry for entry in entries}


def _never_changes(subscription: Subscription) -> bool:
    """Return whether a subscription has no figures that change."""
    parts = subscription.page, subscription.consumer, subscription.replay
    return all(part is None for part in parts)


class PaginationsSource:
    """The result sets of pages. It has to follow the subscriptions in a sample.

    Args:
        subscriptions: has collected them.
    """

    resource = PAGINATIONS

    def __init__(self, subscriptions: SubscriptionsSource) -> None:
        self._subscriptions = subscriptions
        self._known: dict[int, tuple[str, str]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        earlier, self._known = self._known, {}
        for results, pages in self._subscriptions.results.items():
            first = pages[0]
            made = first.subscriber.message_type, first.selector.text
            fixed = self._known[results.number] = earlier.get(results.number, made)
            yield StatisticsEntry(str(results.number), fixed, (results.memory, len(pages)))
