"""Looking into a queue without taking anything: queries, and what is made from its messages.

The messages that nobody has, and that may be delivered now, are to be seen as the records of a
topic: each is one, and its key is its number in the log. Nothing is kept of them. A query reads
them in slices, as they were when it began. Those who follow the queue (views, conflated topics,
aggregated subscriptions, actions) are told what comes and what goes, in slices as well: a message
that has come and gone before its turn is never mentioned. If nobody follows it, none of that is
taken note of.

Sources: AMPS User Guide, Querying Queues as a View; Views and Aggregated Subscriptions over Queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from server.journal import JournalUnreadable
from server.queues import Expired
from server.queues.inspection import available, is_available, leases_of
from server.queues.ledger import VISIBLE
from server.sow.memory_store import MemoryStore
from server.sow.ordering import Ordering, Ranking
from server.sow.portions import Portions
from server.sow.record_test import RecordTest
from server.sow.records import NANOSECONDS_IN_MICROSECOND, Change, Record
from server.sow.store import StoreError
from server.sow.table import RecordTable, TableOptions
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import MATCH
from server.topics.queues.matching import tell_leases
from server.topics.queues.shelf import Shelf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.queues import Departure, Event, Queue
    from server.security.permissions import Permit
    from server.sow.query import QuerySpec
    from server.subscriptions.subscription import Subscription
    from server.topics.queues.shelf import Shelved
    from server.topics.queues.surroundings import Surroundings
    from server.topics.stored import TopicWithRecords

_AT_ONCE: Final = 128
"""Messages that are read in a slice."""
_RETRY_SECONDS: Final = 1.0
"""Until it is tried again to read from a log that cannot be read."""
_MICROSECONDS: Final = 1_000_000
_LAST_TXID: Final = (1 << 63) - 1
_LONGEST_NUMBER: Final = 19
"""Digits that a number in the log may have."""
_ROOM: Final = 1024 * 1024
"""Bytes of memory for what has been read back for onlookers, and is kept for the next slice."""


class Farewell(NamedTuple):
    """A message that has left the queue without having been acknowledged.

    Attributes:
        body: the message.
        correlation_id: its publisher's mark on it, empty for none.
        departure: how it came to that.
    """

    body: bytes
    correlation_id: str
    departure: Departure


class _Known(NamedTuple):
    """What followers know of a message, and what they are to know.

    Attributes:
        was_seen: whether they know it.
        is_seen: whether it can be seen.
    """

    was_seen: bool
    is_seen: bool


class Browsing:
    """The messages that can be seen in one queue, and who follows them.

    Args:
        core: the queue.
        name: its name.
        message_type: how bodies are read.
        functions: what filters may call.
        shelf: has the messages that are at hand.
        surroundings: what the queue needs of the server.

    Attributes:
        records: the messages, to be queried.
    """

    def __init__(
        self,
        core: Queue,
        name: str,
        message_type: MessageType,
        functions: Functions,
        shelf: Shelf,
        surroundings: Surroundings,
    ) -> None:
        self._core: Final = core
        self._shelf: Final = shelf
        self._read_back: Final = shelf.sibling(_ROOM)
        self._surroundings: Final = surroundings
        self._follows = False
        self._has_begun = False
        self._pending: dict[int, _Known] = {}
        self._oldest_pending = _LAST_TXID  # or one before that
        self._told: dict[int, _Leases] = {}  # what followers know of leases, if there were any
        self._mourners: list[Callable[[Farewell], None]] = []
        self._departed: deque[Departure] = deque()
        self._oldest_departed = _LAST_TXID  # or one before that
        self._queries: dict[QueueQuery, None] = {}
        self._is_awake = False
        self.records: Final = QueueRecords(self, name, message_type, functions)

    # who looks

    @cached_property
    def audience(self) -> TopicWithRecords:
        """The subscriptions that look and do not take."""
        return self._surroundings.topics.lookers_at(self.records)

    def attach(self, subscription: Subscription, permit: Permit) -> None:
        """Let a subscription look at the queue. See `Audience.attach`."""
        self.audience.attach(subscription, permit)
        self._look_after()

    def detach(self, subscription: Subscription) -> None:
        """Let a subscription look no more; harmless if it does not."""
        self.audience.detach(subscription)
        self._look_after()

    def mourn(self, mourner: Callable[[Farewell], None]) -> Callable[[], None]:
        """Tell somebody of messages that leave the queue without having been acknowledged.

        Args:
            mourner: who is told.

        Returns:
            A function that ends it.
        """
        self._mourners.append(mourner)
        return partial(self._mourners.remove, mourner)

    def begin(self) -> None:
        """Everything in the log has been taken in: follow the queue, if that is wanted."""
        self._has_begun = True
        self._look_after()

    def _look_after(self) -> None:
        """Follow the queue as long as that is of any use."""
        audience = self.audience
        wanted = self._has_begun and (audience.has_followers or audience.has_subscriptions)
        if wanted == self._follows:
            return
        self._follows = wanted
        self._pending.clear()
        self._told.clear()
        if wanted:
            entries = self._core.ledger.entries
            for place, attempts in self._core.ledger.all_attempts.items():
                self._told[entries.txid(place)] = attempts.deliveries, attempts.last_leased
        self._core.watch(self if wanted else None)

    # what comes and goes

    def came(self, places: Sequence[int]) -> None:
        """See `Watcher.came`."""
        self._note(places, is_seen=True)

    def went(self, places: Sequence[int]) -> None:
        """See `Watcher.went`."""
        self._note(places, is_seen=False)

    def _note(self, places: Sequence[int], *, is_seen: bool) -> None:
        pending = self._pending
        for txid in map(self._core.ledger.entries.txid, places):
            earlier = pending.get(txid)
            was_seen = not is_seen if earlier is None else earlier.was_seen
            pending[txid] = _Known(was_seen, is_seen)
            self._oldest_pending = min(self._oldest_pending, txid)
        self._wake()

    def take_events(self, events: Sequence[Event]) -> None:
        """Take note of what has happened to messages."""
        if not self._mourners:
            return
        for event in events:
            if isinstance(event, Expired):
                self._departed += event.departures
                oldest = min(departure.txid for departure in event.departures)
                self._oldest_departed = min(self._oldest_departed, oldest)
        if self._departed:
            self._wake()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._surroundings.queue(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`; it is for all onlookers."""
        return "", "what follows a queue"

    def step(self) -> bool:
        """Tell of some messages. See `Sliced.step`."""
        try:
            self._tell_some()
            self._bury_some()
        except JournalUnreadable:
            self._is_awake = False
            self._surroundings.clock.call_later(_RETRY_SECONDS, self._wake)
            return False
        self._is_awake = bool(self._pending or self._departed)
        return self._is_awake

    def _tell_some(self) -> None:
        txids = list(islice(self._pending, _AT_ONCE))
        messages = self.read(txids)
        envelope = Envelope(None, self._surroundings.clock.now())
        for txid, message in zip(txids, messages, strict=True):
            known = self._pending.pop(txid)
            told = self._told.pop(txid, _NEVER)
            previous = self._record(txid, message, told) if known.was_seen else None
            record = None
            if known.is_seen:
                leases = self._leases(message)
                if leases != _NEVER:
                    self._told[txid] = leases
                record = self._record(txid, message, leases)
            if previous is not None or record is not None:
                change = Change(str(txid), self.records.name, previous, record)
                self.audience.announce(change, envelope, MATCH)
        if not self._pending:
            self._oldest_pending = _LAST_TXID

    def _bury_some(self) -> None:
        some = list(islice(self._departed, _AT_ONCE))
        messages = self.read([departure.txid for departure in some])
        for departure, message in zip(some, messages, strict=True):
            self._departed.popleft()
            if message is None:
                continue
            correlation_id = message.context.correlation_id or ""
            for mourner in list(self._mourners):
                mourner(Farewell(message.body, correlation_id, departure))
        if not self._departed:
            self._oldest_departed = _LAST_TXID

    # reading

    @property
    def needed_from(self) -> int | None:
        """The first message that has to be read yet, though it may have left; None for none."""
        if not (self._queries or self._pending or self._departed):
            return None
        needed = [query.needed_from for query in self._queries]
        if self._pending:
            needed.append(self._oldest_pending)
        if self._departed:
            needed.append(self._oldest_departed)
        return min(needed, default=None)

    def read(self, txids: Sequence[int]) -> list[Shelved | None]:
        """Read messages; those that are not at hand are read from the log, and not kept at hand.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
        """
        at_hand = map(self._shelf.at_hand, txids)
        return [
            self._read_back.get((txid,))[0] if message is None else message
            for txid, message in zip(txids, at_hand, strict=True)
        ]

    def records_of(self, txids: Sequence[int]) -> list[Record]:
        """Messages as records, without those that are damaged in the log.

        Raises:
            StoreError: the log cannot be read at the moment.
        """
        try:
            messages = self.read(txids)
        except JournalUnreadable as problem:
            raise StoreError(str(problem)) from None
        return [
            self._record(txid, message, self._leases(message))
            for txid, message in zip(txids, messages, strict=True)
            if message is not None
        ]

    def _record(self, txid: int, message: Shelved | None, leases: _Leases) -> Record:
        name = self.records.name
        if message is None:  # it is damaged in the log
            return Record(str(txid), b"", name, sequence=txid)
        context = message.context
        tell_leases(context, leases)
        return Record(
            str(txid),
            message.body,
            name,
            message.moment * NANOSECONDS_IN_MICROSECOND,
            sequence=txid,
            correlation_id=context.correlation_id or "",
            bookmark=context.bookmark or "",
            context=context,
        )

    def _leases(self, message: Shelved | None) -> _Leases:
        """How often a message has been leased, and when last."""
        if message is None:
            return _NEVER
        return leases_of(self._core, message.mark)

    def seen(self) -> NDArray[np.uint64]:
        """The messages that can be seen, by their numbers in the log, in the order of delivery.

        They are what followers have been told: these are not told again of what has come since.
        """
        txids = available(self._core)
        if not self._pending:
            return txids
        untold = [txid for txid, known in self._pending.items() if not known.was_seen]
        gone = [txid for txid, known in self._pending.items() if known.was_seen]
        numbers = np.array([*untold, *gone], np.uint64)
        seen = txids[~np.isin(txids, numbers)]
        if gone:
            seen = np.concatenate([seen, np.array(gone, np.uint64)])
            if not self._core.settings.prioritized:
                seen.sort()
        return seen

    @property
    def count(self) -> int:
        """How many messages can be seen. See `seen`."""
        counts, pending = self._core.ledger.entries.counts, self._pending.values()
        untold = sum(known.is_seen - known.was_seen for known in pending)
        return sum(counts[state] for state in VISIBLE) - untold

    def find(self, txid: int) -> Record | None:
        """A message that can be seen; None if there is none with a number."""
        message = self.read((txid,))[0]
        if message is None or not is_available(self._core, message.mark):
            return None
        return self._record(txid, message, self._leases(message))

    def query(self, spec: QuerySpec) -> QueueQuery:
        """Begin a query."""
        query = QueueQuery(self, self.records.table, spec, self._queries.pop)
        self._queries[query] = None
        return query


_Leases = tuple[int, int]
"""How often a message has been leased, and when last, in microseconds since 1970."""
_NEVER: Final[_Leases] = (0, 0)


class QueueRecords:
    """What can be seen in a queue, as the records of a topic. See `Keeper`.

    Args:
        browsing: knows what can be seen.
        name: the queue's name.
        message_type: how bodies are read.
        functions: what filters may call.
    """

    is_container: Final = False
    key_fields: Final = ()

    def __init__(
        self, browsing: Browsing, name: str, message_type: MessageType, functions: Functions
    ) -> None:
        self.name: Final = name
        self.type_name: Final = message_type.name
        self.table: Final = RecordTable(
            _Seen(browsing), message_type, TableOptions(functions=functions)
        )
        self._browsing = browsing

    def keeps(self, name: str) -> bool:
        """See `Keeper.keeps`."""
        return name == self.name

    def query(self, spec: QuerySpec, now: int) -> QueueQuery:  # noqa: ARG002 - there is no past
        """See `Keeper.query`."""
        return self._browsing.query(spec)


class _Seen(MemoryStore):
    """A store that has nothing of its own: its rows are the numbers of messages in the log."""

    __slots__ = ("_browsing",)

    def __init__(self, browsing: Browsing) -> None:
        super().__init__()
        self._browsing = browsing

    def __len__(self) -> int:
        """See `RecordStore.__len__`."""
        return self._browsing.count

    def row(self, identity: str) -> int | None:
        """See `RecordStore.row`."""
        found = self._browsing.find(int(identity)) if _is_number(identity) else None
        return None if found is None else found.sequence

    def record(self, row: int) -> Record:
        """See `RecordStore.record`."""
        found = self._browsing.records_of((row,))
        return found[0] if found else Record(str(row), b"", "", sequence=row)

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `RecordStore.identities`."""
        return ((str(txid), txid) for txid in self._browsing.seen().tolist())


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _LONGEST_NUMBER


class QueueQuery(Iterator[list[Record]]):
    """A query of a queue under way. See `server.sow.query.Query`.

    Args:
        browsing: reads messages.
        table: what filters need to know of them.
        spec: what is asked.
        ended: called when it has ended.

    Attributes:
        topic_matches: the messages that could be seen when it began.
        matches: those that match so far.
        needed_from: the oldest message that it may read.
    """

    def __init__(
        self,
        browsing: Browsing,
        table: RecordTable,
        spec: QuerySpec,
        ended: Callable[[QueueQuery, None], object],
    ) -> None:
        self._browsing: Final = browsing
        self._spec: Final = spec
        self._ended: Final = ended
        txids = browsing.seen()
        self.topic_matches: Final = len(txids)
        self.matches = 0
        if spec.keys is not None:
            keys = [int(key) for key in spec.keys if _is_number(key)]
            txids = txids[np.isin(txids, np.array(keys, np.uint64))]
        self._txids: Final = txids
        self.needed_from: Final = int(txids.min(initial=_LAST_TXID))
        self._portions: Final = Portions(spec.filter, _AT_ONCE)
        self._test: Final = RecordTest(table, spec.filter, effort=self._portions.effort)
        self._ordering: Final = Ordering(spec.order_by, table.message_type)
        self._extract: Final = table.extractor(self._ordering.fields)
        self._last: Final = None if spec.top_n is None else spec.skip_n + spec.top_n
        steps = self._ordered if spec.order_by else self._chosen if spec.filter else self._all
        self._steps: Iterator[list[Record]] = steps()

    def __next__(self) -> list[Record]:
        """Do a slice of the work. See `Query.__next__`.

        Raises:
            StoreError: the log cannot be read at the moment.
            TooCostlyError: the filter takes too long.
        """
        try:
            return next(self._steps)
        except StopIteration:
            self.close()
            raise

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._steps = iter(())
        self._ended(self, None)

    def _matching(self) -> Iterator[list[Record]]:
        start = 0
        while start < len(self._txids):
            some = self._txids[start : start + self._portions.size].tolist()
            found = self._portions.test(partial(self._look_at, some))
            if found is not None:
                start += len(some)
                self.matches += len(found)
                yield found

    def _look_at(self, txids: Sequence[int]) -> list[Record]:
        return list(filter(self._test, self._browsing.records_of(txids)))

    def _all(self) -> Iterator[list[Record]]:
        """Messages as they are delivered: only those that are wanted have to be read."""
        self.matches = len(self._txids)
        wanted = self._txids[self._spec.skip_n : self._last]
        for start in range(0, len(wanted), _AT_ONCE):
            yield self._browsing.records_of(wanted[start : start + _AT_ONCE].tolist())

    def _chosen(self) -> Iterator[list[Record]]:
        for found in self._matching():
            before = self.matches - len(found)
            start = max(0, self._spec.skip_n - before)
            yield found[start : None if self._last is None else max(0, self._last - before)]

    def _ordered(self) -> Iterator[list[Record]]:
        ranking, order = Ranking(self._spec.skip_n, self._last), self._ordering
        for found in self._matching():
            values = (self._extract(record.body) for record in found)
            ranking.add(order.place(values, (record.sequence for record in found)))
            yield []
        for some in ranking.slices(_AT_ONCE):
            yield self._browsing.records_of(some)
