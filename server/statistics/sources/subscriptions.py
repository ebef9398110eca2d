"""Subscriptions, and the result sets that their pages are parts of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from server.engine.replays.replay import Replay
from server.expressions.filter_form import text_of
from server.security.permissions import Permission
from server.statistics.resources import PAGINATIONS, SUBSCRIPTIONS
from server.statistics.sample import StatisticsEntry
from server.topics.subscriptions.record_fanout import RecordFanout

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.topics.subscriptions.paging.result_set import ResultSet
    from server.topics.subscriptions.subscription import Subscription

_NO_VALUES: Final = (0, "", 0.0)
"""The moving values of a subscription without queue messages and without a replay."""

_BATCH_SIZE: Final = 64
"""Subscriptions per time slice when entries are created: a microsecond each."""


class _ClientEntries:
    """The subscriptions of one client in a sample.

    Args:
        session: the client.

    Attributes:
        fingerprint: a value that changes with the set of subscriptions; see `_fingerprint`.
        static_batches: the entries of subscriptions that never change, in batches.
        changing_entries: the others, with their entries.
    """

    def __init__(self, session: Session) -> None:
        self.fingerprint = _fingerprint(session)
        self.static_batches: list[list[StatisticsEntry]] = []
        self.changing_entries: dict[Subscription, StatisticsEntry] = {}


def _fingerprint(session: Session) -> tuple[int, int]:
    """Return a value that is constant as long as a client has the same subscriptions."""
    return session.subscriptions_started, len(session.subscriptions)


class SubscriptionsSource:
    """The subscriptions of all clients.

    Nearly all of them have no figures that change: their entries are created once, and are reused
    as a batch as long as their client begins and ends no subscription.

    Args:
        engine: has their sessions.

    Attributes:
        result_sets: the result sets seen in the last sample, each with the subscriptions of its
            pages.
    """

    resource = SUBSCRIPTIONS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Those of the last sample, by number of the session.
        self._client_entries: dict[int, _ClientEntries] = {}
        self.result_sets: dict[ResultSet, list[Subscription]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        return chain.from_iterable(self._entry_batches())

    def _entry_batches(self) -> Iterator[list[StatisticsEntry]]:
        earlier, self._client_entries = self._client_entries, {}
        self.result_sets = {}
        for session in list(self._engine.sessions):
            block = earlier.get(session.number)
            if block is not None and block.fingerprint == _fingerprint(session):
                self._client_entries[session.number] = block
                yield from block.static_batches
                for subscription, entry in block.changing_entries.items():
                    moved = self._refresh_entry(subscription, entry)
                    block.changing_entries[subscription] = moved
                    yield [moved]
            elif session.subscriptions:
                yield from self._make_entries(session, block)

    def _make_entries(
        self, session: Session, before: _ClientEntries | None
    ) -> Iterator[list[StatisticsEntry]]:
        """Create the entries of a client after a change of its subscriptions."""
        block = _ClientEntries(session)
        earlier = {} if before is None else _entries_by_id(before)
        subscriptions = list(session.subscriptions.values())
        for first in range(0, len(subscriptions), _BATCH_SIZE):
            still: list[StatisticsEntry] = []
            for subscription in subscriptions[first : first + _BATCH_SIZE]:
                entry = earlier.get(str(subscription.number)) or self._make_entry(
                    session, subscription
                )
                if _is_constant(subscription):
                    still.append(entry)
                else:
                    block.changing_entries[subscription] = self._refresh_entry(subscription, entry)
            block.static_batches.append(still)
            yield still
        yield from ([entry] for entry in block.changing_entries.values())
        self._client_entries[session.number] = block

    def _refresh_entry(self, subscription: Subscription, entry: StatisticsEntry) -> StatisticsEntry:
        """Return the entry of a subscription that may have changed."""
        dynamic_values = self._dynamic_values(subscription)
        return (
            entry
            if dynamic_values == entry.dynamic_values
            else entry._replace(dynamic_values=dynamic_values)
        )

    def _dynamic_values(self, subscription: Subscription) -> tuple[int, str, float]:
        if subscription.page is not None and (results := self._result_set_of(subscription)):
            self.result_sets.setdefault(results, []).append(subscription)
        consumer, replay = subscription.consumer, subscription.replay
        if isinstance(replay, Replay):
            return 0, replay.cursor, replay.seconds_behind(self._engine.clock.now())
        return _NO_VALUES if consumer is None else (consumer.outstanding, "", 0.0)

    def _result_set_of(self, subscription: Subscription) -> ResultSet | None:
        """Return the result set of its page."""
        topics, message_type = self._engine.topics, subscription.subscriber.message_type
        topic = topics.find(message_type, subscription.selector.text)
        return topic.result_set(subscription) if isinstance(topic, RecordFanout) else None

    def _make_entry(self, session: Session, subscription: Subscription) -> StatisticsEntry:
        results = None if subscription.page is None else self._result_set_of(subscription)
        content_filter = subscription.content_filter
        static_values = (
            subscription.bookmark or "",
            str(session.number),
            _entitlement_filter(session, subscription),
            "" if content_filter is None else text_of(content_filter),
            session.message_type,
            subscription.options or "",
            "" if results is None else str(results.number),
            subscription.sub_id,
            subscription.selector.text,
        )
        return StatisticsEntry(str(subscription.number), static_values, _NO_VALUES)


def _entitlement_filter(session: Session, subscription: Subscription) -> str:
    """Return the filter that entitlement adds; empty for a regular expression, where it differs."""
    selector = subscription.selector
    if selector.is_regex:
        return ""
    return session.get_permit(Permission.READ_TOPIC, selector.text).filter_text


def _entries_by_id(block: _ClientEntries) -> dict[str, StatisticsEntry]:
    entries = chain(chain.from_iterable(block.static_batches), block.changing_entries.values())
    return {entry.id: entry for entry in entries}


def _is_constant(subscription: Subscription) -> bool:
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
        self._static_values: dict[int, tuple[str, str]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        earlier, self._static_values = self._static_values, {}
        for results, pages in self._subscriptions.result_sets.items():
            first = pages[0]
            created = first.subscriber.message_type, first.selector.text
            static_values = self._static_values[results.number] = earlier.get(
                results.number, created
            )
            yield StatisticsEntry(
                str(results.number), static_values, (results.memory_bytes, len(pages))
            )
