"""Read-only access to a queue: queries, and topics that are computed from its messages.

The messages that no consumer has, and that may be delivered now, are visible as the records of a
topic: each message is one record, and its key is its txid. No copies are stored. A query reads the
messages in time slices, as they were when it began. The followers of the queue (views, conflated
topics, aggregated subscriptions, actions) are notified of messages that become visible or
invisible, in time slices as well: a message that has become both before its slice causes no
notification. Without followers, none of this is tracked.

Sources: AMPS User Guide, Querying Queues as a View; Views and Aggregated Subscriptions over Queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from server.queues.core import Expired
from server.queues.core.inspection import available, is_available, leases_of
from server.queues.core.message_state import VISIBLE
from server.queues.topic.filter_matcher import set_lease_context
from server.queues.topic.message_cache import MessageCache
from server.storage.journal import JournalUnreadableError
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.query.adaptive_batch import AdaptiveBatchSize
from server.storage.sow.query.record_filter import RecordFilter
from server.storage.sow.query.record_order import RecordOrder, RowSorter
from server.storage.sow.record_table import RecordTable
from server.storage.sow.record_table_options import RecordTableOptions
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, Record, RecordChange
from server.storage.sow.store import RecordStoreError
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_delivery import MATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.queues.core import Queue, QueueEvent, RemovalDetails
    from server.queues.topic.context import QueueServices
    from server.queues.topic.message_cache import CachedMessage
    from server.security.permissions import Permit
    from server.storage.sow.query.query import QuerySpec
    from server.topics.sow_topic import RecordTopic
    from server.topics.subscriptions.subscription import Subscription

_BATCH_SIZE: Final = 128
"""Messages read per time slice."""
_RETRY_INTERVAL_S: Final = 1.0
"""Delay before a failed read of the log is retried."""
_LAST_TXID: Final = (1 << 63) - 1
_MAX_NUMBER_LENGTH: Final = 19
"""Maximum number of digits of a txid."""
_MAX_CACHE_BYTES: Final = 1024 * 1024
"""Bytes of memory for messages read back for followers and queries, kept for the next slice."""


class UnacknowledgedMessage(NamedTuple):
    """A message that has left the queue without having been acknowledged.

    Attributes:
        body: the message.
        correlation_id: the correlation id that its publisher set, empty for none.
        removal: the reason, and the delivery counts.
    """

    body: bytes
    correlation_id: str
    removal: RemovalDetails


class _MessageVisibility(NamedTuple):
    """The visibility of a message as followers know it, and as it is now.

    Attributes:
        was_visible: followers have been notified of the message.
        is_visible: the message is visible now.
    """

    was_visible: bool
    is_visible: bool


class QueueBrowser:
    """The visible messages of one queue, and their followers.

    Args:
        core: the queue.
        name: its name.
        message_type: parses bodies.
        functions: the functions that filters may call.
        message_cache: the cache of recent messages.
        services: the server's services for the queue.

    Attributes:
        records: the visible messages as records, for queries.
    """

    def __init__(
        self,
        core: Queue,
        name: str,
        message_type: MessageType,
        functions: Functions,
        message_cache: MessageCache,
        services: QueueServices,
    ) -> None:
        self._core: Final = core
        self._message_cache: Final = message_cache
        self._reader_cache: Final = message_cache.create_reader_cache(_MAX_CACHE_BYTES)
        self._services: Final = services
        self._is_watching = False
        self._has_begun = False
        self._pending: dict[int, _MessageVisibility] = {}
        self._oldest_pending = _LAST_TXID  # or one before that
        # leases as followers know them, by txid, if there were any
        self._notified_leases: dict[int, _Leases] = {}
        self._removal_callbacks: list[Callable[[UnacknowledgedMessage], None]] = []
        self._pending_removals: deque[RemovalDetails] = deque()
        self._oldest_removed_txid = _LAST_TXID  # or one before that
        self._queries: dict[QueueQuery, None] = {}
        self._is_awake = False
        self.records: Final = QueueRecords(self, name, message_type, functions)

    # followers

    @cached_property
    def record_topic(self) -> RecordTopic:
        """The subscriptions that follow the queue without consuming."""
        return self._services.topics.make_reader_topic(self.records)

    def attach(self, subscription: Subscription, permit: Permit) -> None:
        """Add a subscription that follows the queue; see `SubscriberSet.attach`."""
        self.record_topic.attach(subscription, permit)
        self._update_watch()

    def detach(self, subscription: Subscription) -> None:
        """Remove a subscription that follows the queue; a no-op for others."""
        self.record_topic.detach(subscription)
        self._update_watch()

    def add_removal_callback(
        self, callback: Callable[[UnacknowledgedMessage], None]
    ) -> Callable[[], None]:
        """Add a callback for messages that leave the queue without having been acknowledged.

        Args:
            callback: the callback.

        Returns:
            A function that removes the callback.
        """
        self._removal_callbacks.append(callback)
        return partial(self._removal_callbacks.remove, callback)

    def begin(self) -> None:
        """Start to watch the queue, if it has followers; called when recovery is complete."""
        self._has_begun = True
        self._update_watch()

    def _update_watch(self) -> None:
        """Watch the core exactly as long as there are followers."""
        record_topic = self.record_topic
        must_watch = self._has_begun and (
            record_topic.has_followers or record_topic.has_subscriptions
        )
        if must_watch == self._is_watching:
            return
        self._is_watching = must_watch
        self._pending.clear()
        self._notified_leases.clear()
        if must_watch:
            entries = self._core.lifecycle.entries
            for offset, attempts in self._core.lifecycle.all_attempts.items():
                self._notified_leases[entries.txid(offset)] = (
                    attempts.deliveries,
                    attempts.last_leased,
                )
        self._core.watch(self if must_watch else None)

    # notifications

    def record_appeared(self, offsets: Sequence[int]) -> None:
        """Record that messages have become visible."""
        self._record_visibility(offsets, is_visible=True)

    def record_disappeared(self, offsets: Sequence[int]) -> None:
        """Record that visible messages have left the queue, or are not visible any more."""
        self._record_visibility(offsets, is_visible=False)

    def _record_visibility(self, offsets: Sequence[int], *, is_visible: bool) -> None:
        pending = self._pending
        for txid in map(self._core.lifecycle.entries.txid, offsets):
            earlier = pending.get(txid)
            was_visible = not is_visible if earlier is None else earlier.was_visible
            pending[txid] = _MessageVisibility(was_visible, is_visible)
            self._oldest_pending = min(self._oldest_pending, txid)
        self._wake()

    def collect_removals(self, events: Sequence[QueueEvent]) -> None:
        """Queue expired messages of `events` for the callbacks of `add_removal_callback`."""
        if not self._removal_callbacks:
            return
        for event in events:
            if isinstance(event, Expired):
                self._pending_removals += event.departures
                oldest = min(removal.txid for removal in event.departures)
                self._oldest_removed_txid = min(self._oldest_removed_txid, oldest)
        if self._pending_removals:
            self._wake()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._services.schedule(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is for all followers."""
        return "", "what follows a queue"

    def step(self) -> bool:
        """Send the notifications of messages. See `EngineTask.step`."""
        try:
            self._notify_followers()
            self._notify_removals()
        except JournalUnreadableError:
            self._is_awake = False
            self._services.clock.call_later(_RETRY_INTERVAL_S, self._wake)
            return False
        self._is_awake = bool(self._pending or self._pending_removals)
        return self._is_awake

    def _notify_followers(self) -> None:
        txids = list(islice(self._pending, _BATCH_SIZE))
        messages = self.read(txids)
        envelope = Envelope(None, self._services.clock.now())
        for txid, message in zip(txids, messages, strict=True):
            visibility = self._pending.pop(txid)
            notified_leases = self._notified_leases.pop(txid, _NEVER)
            previous = (
                self._make_record(txid, message, notified_leases)
                if visibility.was_visible
                else None
            )
            record = None
            if visibility.is_visible:
                leases = self._lease_history(message)
                if leases != _NEVER:
                    self._notified_leases[txid] = leases
                record = self._make_record(txid, message, leases)
            if previous is not None or record is not None:
                change = RecordChange(str(txid), self.records.name, previous, record)
                self.record_topic.announce(change, envelope, MATCH)
        if not self._pending:
            self._oldest_pending = _LAST_TXID

    def _notify_removals(self) -> None:
        batch = list(islice(self._pending_removals, _BATCH_SIZE))
        messages = self.read([removal.txid for removal in batch])
        for removal, message in zip(batch, messages, strict=True):
            self._pending_removals.popleft()
            if message is None:
                continue
            correlation_id = message.context.correlation_id or ""
            for callback in list(self._removal_callbacks):
                callback(UnacknowledgedMessage(message.body, correlation_id, removal))
        if not self._pending_removals:
            self._oldest_removed_txid = _LAST_TXID

    # reading

    @property
    def first_needed_txid(self) -> int | None:
        """The txid of the oldest message still to be read, even if it has left; None for none."""
        if not (self._queries or self._pending or self._pending_removals):
            return None
        needed = [query.first_needed_txid for query in self._queries]
        if self._pending:
            needed.append(self._oldest_pending)
        if self._pending_removals:
            needed.append(self._oldest_removed_txid)
        return min(needed, default=None)

    def read(self, txids: Sequence[int]) -> list[CachedMessage | None]:
        """Return messages; those not in the cache are read from the log, and are not added to it.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        cached = map(self._message_cache.find_cached, txids)
        return [
            self._reader_cache.get((txid,))[0] if message is None else message
            for txid, message in zip(txids, cached, strict=True)
        ]

    def read_records(self, txids: Sequence[int]) -> list[Record]:
        """Return messages as records, except messages that are damaged in the log.

        Raises:
            RecordStoreError: the log cannot be read at the moment.
        """
        try:
            messages = self.read(txids)
        except JournalUnreadableError as problem:
            raise RecordStoreError(str(problem)) from None
        return [
            self._make_record(txid, message, self._lease_history(message))
            for txid, message in zip(txids, messages, strict=True)
            if message is not None
        ]

    def _make_record(self, txid: int, message: CachedMessage | None, leases: _Leases) -> Record:
        name = self.records.name
        if message is None:  # the message is damaged in the log
            return Record(str(txid), b"", name, sequence=txid)
        context = message.context
        set_lease_context(context, leases)
        return Record(
            str(txid),
            message.body,
            name,
            message.recorded_us * NANOSECONDS_IN_MICROSECOND,
            sequence=txid,
            correlation_id=context.correlation_id or "",
            bookmark=context.bookmark or "",
            context=context,
        )

    def _lease_history(self, message: CachedMessage | None) -> _Leases:
        """Return the number of leases of a message, and the time of the last one."""
        if message is None:
            return _NEVER
        return leases_of(self._core, message.bookmark)

    def visible_txids(self) -> NDArray[np.uint64]:
        """Return the txids of the visible messages, in the order of delivery.

        The result is the state that followers have been notified of: pending notifications are
        still to come, and none of them repeats a message of the result.
        """
        txids = available(self._core)
        if not self._pending:
            return txids
        unnotified = [
            txid for txid, visibility in self._pending.items() if not visibility.was_visible
        ]
        gone = [txid for txid, visibility in self._pending.items() if visibility.was_visible]
        numbers = np.array([*unnotified, *gone], np.uint64)
        visible = txids[~np.isin(txids, numbers)]
        if gone:
            visible = np.concatenate([visible, np.array(gone, np.uint64)])
            if not self._core.settings.prioritized:
                visible.sort()
        return visible

    @property
    def count(self) -> int:
        """The number of visible messages. See `visible_txids`."""
        state_counts, pending = self._core.lifecycle.entries.state_counts, self._pending.values()
        unnotified = sum(visibility.is_visible - visibility.was_visible for visibility in pending)
        return sum(state_counts[state] for state in VISIBLE) - unnotified

    def find(self, txid: int) -> Record | None:
        """Return the visible message with a txid, None if there is none."""
        message = self.read((txid,))[0]
        if message is None or not is_available(self._core, message.bookmark):
            return None
        return self._make_record(txid, message, self._lease_history(message))

    def query(self, spec: QuerySpec) -> QueueQuery:
        """Begin a query."""
        query = QueueQuery(self, self.records.table, spec, self._queries.pop)
        self._queries[query] = None
        return query


_Leases = tuple[int, int]
"""The number of leases of a message, and the time of the last one in microseconds since 1970."""
_NEVER: Final[_Leases] = (0, 0)


class QueueRecords:
    """The visible messages of a queue as the records of a topic. See `RecordSource`.

    Args:
        browser: knows the visible messages.
        name: the queue's name.
        message_type: parses bodies.
        functions: the functions that filters may call.
    """

    is_container: Final = False
    key_fields: Final = ()

    def __init__(
        self, browser: QueueBrowser, name: str, message_type: MessageType, functions: Functions
    ) -> None:
        self.name: Final = name
        self.type_name: Final = message_type.name
        self.table: Final = RecordTable(
            _VisibleMessageStore(browser), message_type, RecordTableOptions(functions=functions)
        )
        self._browser = browser

    def covers_topic(self, name: str) -> bool:
        """See `RecordSource.covers_topic`."""
        return name == self.name

    def query(self, spec: QuerySpec, now: int) -> QueueQuery:  # noqa: ARG002 - there is no past
        """See `RecordSource.query`."""
        return self._browser.query(spec)


class _VisibleMessageStore(MemoryStore):
    """A store without data of its own: its rows are the txids of messages."""

    __slots__ = ("_browser",)

    def __init__(self, browser: QueueBrowser) -> None:
        super().__init__()
        self._browser = browser

    def __len__(self) -> int:
        """See `RecordStore.__len__`."""
        return self._browser.count

    def find_row(self, identity: str) -> int | None:
        """See `RecordStore.find_row`."""
        record = self._browser.find(int(identity)) if _is_number(identity) else None
        return None if record is None else record.sequence

    def read_record(self, row: int) -> Record:
        """See `RecordStore.read_record`."""
        records = self._browser.read_records((row,))
        return records[0] if records else Record(str(row), b"", "", sequence=row)

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `RecordStore.identities`."""
        return ((str(txid), txid) for txid in self._browser.visible_txids().tolist())


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _MAX_NUMBER_LENGTH


class QueueQuery(Iterator[list[Record]]):
    """A query of a queue in execution. See `server.storage.sow.query.query.Query`.

    Args:
        browser: reads messages.
        table: describes the messages to filters.
        spec: the query.
        on_close: called when the query has ended.

    Attributes:
        topic_matches: the number of messages that were visible when the query began.
        matches: the number of matching messages so far.
        first_needed_txid: the txid of the oldest message that the query may read.
    """

    def __init__(
        self,
        browser: QueueBrowser,
        table: RecordTable,
        spec: QuerySpec,
        on_close: Callable[[QueueQuery, None], object],
    ) -> None:
        self._browser: Final = browser
        self._spec: Final = spec
        self._on_close: Final = on_close
        txids = browser.visible_txids()
        self.topic_matches: Final = len(txids)
        self.matches = 0
        if spec.keys is not None:
            keys = [int(key) for key in spec.keys if _is_number(key)]
            txids = txids[np.isin(txids, np.array(keys, np.uint64))]
        self._txids: Final = txids
        self.first_needed_txid: Final = int(txids.min(initial=_LAST_TXID))
        self._batch_size: Final = AdaptiveBatchSize(spec.filter, _BATCH_SIZE)
        self._record_filter: Final = RecordFilter(
            table, spec.filter, search_counter=self._batch_size.search_allowance
        )
        self._record_order: Final = RecordOrder(spec.order_by, table.message_type)
        self._extract: Final = table.extractor(self._record_order.fields)
        self._page_end: Final = None if spec.top_n is None else spec.skip_n + spec.top_n
        steps = (
            self._iter_ordered
            if spec.order_by
            else self._iter_filtered
            if spec.filter
            else self._iter_all
        )
        self._steps: Iterator[list[Record]] = steps()

    def __next__(self) -> list[Record]:
        """Execute one time slice of the query. See `Query.__next__`.

        Raises:
            RecordStoreError: the log cannot be read at the moment.
            TooCostlyError: the filter takes too long.
        """
        try:
            return next(self._steps)
        except StopIteration:
            self.close()
            raise

    def close(self) -> None:
        """End the query; a no-op if it has ended."""
        self._steps = iter(())
        self._on_close(self, None)

    def _iter_matches(self) -> Iterator[list[Record]]:
        start = 0
        while start < len(self._txids):
            txids = self._txids[start : start + self._batch_size.size].tolist()
            records = self._batch_size.run_batch(partial(self._filter_records, txids))
            if records is not None:
                start += len(txids)
                self.matches += len(records)
                yield records

    def _filter_records(self, txids: Sequence[int]) -> list[Record]:
        return list(filter(self._record_filter, self._browser.read_records(txids)))

    def _iter_all(self) -> Iterator[list[Record]]:
        """Return messages in the order of delivery; only those of the requested page are read."""
        self.matches = len(self._txids)
        page = self._txids[self._spec.skip_n : self._page_end]
        for start in range(0, len(page), _BATCH_SIZE):
            yield self._browser.read_records(page[start : start + _BATCH_SIZE].tolist())

    def _iter_filtered(self) -> Iterator[list[Record]]:
        for records in self._iter_matches():
            previous_matches = self.matches - len(records)
            start = max(0, self._spec.skip_n - previous_matches)
            yield records[
                start : None
                if self._page_end is None
                else max(0, self._page_end - previous_matches)
            ]

    def _iter_ordered(self) -> Iterator[list[Record]]:
        sorter, order = RowSorter(self._spec.skip_n, self._page_end), self._record_order
        for records in self._iter_matches():
            values = (self._extract(record.body) for record in records)
            sorter.add(order.make_sort_rows(values, (record.sequence for record in records)))
            yield []
        for txids in sorter.slices(_BATCH_SIZE):
            yield self._browser.read_records(txids)
