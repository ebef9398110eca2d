"""A queue as a topic: messages come from the log, and go to one consumer each.

    a publish ---> the underlying topic ---> the log ---> QueueTopic.take ---> Queue.enqueue
    the engine's turn ---> QueueTopic.step ---> Queue.deliver ---> the consumers' outboxes
    sow_delete ---> QueueTopic.acknowledge ---> Queue.acknowledge ---> an entry of the log

What is decided is the core's affair (server/queues/). Here is what it needs of the server: bodies,
the log, turns and timers, and the connections of consumers. Everything that the core wants recorded
goes into the log under the queue's own name, before anything that happens later.

Source: AMPS User Guide, Message Queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from server.expressions import to_text
from server.journal import MESSAGES, JournalUnavailable, JournalUnreadable, Kind, Span
from server.queues import Delivery, Event, Mark, Queue, Way, encode, settings_of
from server.queues.inspection import everything
from server.subscriptions.delivery import Delivery as MessageDelivery
from server.subscriptions.delivery import DirectDelivery
from server.subscriptions.failures import give_up_on
from server.topics.queue_browsing import Browsing
from server.topics.queue_entrance import Entrance
from server.topics.queue_forgotten import Forgotten
from server.topics.queue_matching import QueueMatching, Wanted
from server.topics.queue_messages import QueueRun, lease_key
from server.topics.queue_shelf import Shelf
from server.topics.topic import Topic

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.expressions import Functions
    from server.expressions.topic_names import TopicSelector
    from server.expressions.tree import Expr
    from server.journal import Cursor, Run, TopicHandle
    from server.journal import Topic as TopicName
    from server.message_types.base import MessageType
    from server.queues import Consumer
    from server.sow.store import Settled
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.rejection import Rejection
    from server.subscriptions.subscription import Subscription
    from server.topics.feed import Recorded
    from server.topics.queue_surroundings import Surroundings

_MICROSECONDS: Final = 1_000_000
_SENT_AT_ONCE: Final = 256
"""Messages that a slice delivers."""
_MATCHED_AT_ONCE: Final = 512
"""Messages that a slice matches against the filters of consumers."""
_RETRY_SECONDS: Final = 1.0
"""Until it is tried again to read from, or to write to, a log that refuses."""
_LEAST_DELAY: Final = 0.001
_ALIKE: Final = attrgetter("origin.client", "origin.envelope.keys")
"""Messages with the same go together."""


class Said(NamedTuple):
    """Who says of messages what became of them.

    Attributes:
        way: what became of them.
        client: the number of the session that says so.
        publisher: its client hash and the number of its command, 0 for none.
        delay: for how many microseconds messages that are given back stay away; None for as long
            as the queue says.
    """

    way: Way
    client: int
    publisher: tuple[int, int] = (0, 0)
    delay: int | None = None


class Found(NamedTuple):
    """Some of the messages that are looked for.

    Attributes:
        looked_at: messages that it might have been.
        places: where in the queue those are that it is.
    """

    looked_at: int
    places: Sequence[int]


class Acknowledged(NamedTuple):
    """What an acknowledgement has come to.

    Attributes:
        looked_at: messages that it might have meant.
        matched: messages that it meant.
        done: messages that it took effect on.
    """

    looked_at: int
    matched: int
    done: int


class Target(Protocol):
    """The topic that takes what is published to a queue."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """See `Topic.publish`."""


class QueueTopic(Topic):
    """One queue.

    Args:
        spec: its description.
        message_type: how bodies are read.
        functions: what expressions may call.
        instance: the name of this instance.
        source: the topics that feed it.
        surroundings: what it needs of the server.

    Attributes:
        spec: see above.
        source: see above.
        target: takes what is published to it; set before anything is.
        core: who decides.
        browsing: lets others look at the messages without taking them.
    """

    __slots__ = (
        "_ahead",
        "_cancel_timer",
        "_deliveries",
        "_entrance",
        "_functions",
        "_handle",
        "_is_awake",
        "_is_stalled",
        "_outgoing",
        "_shelf",
        "_surroundings",
        "_timer_at",
        "_unrecorded",
        "_unsent",
        "_waits_for_log",
        "browsing",
        "core",
        "source",
        "spec",
        "target",
    )

    keeps_messages = True
    is_journaled = True

    def __init__(
        self,
        spec: QueueSpec,
        message_type: MessageType,
        functions: Functions,
        instance: str,
        source: TopicSelector,
        surroundings: Surroundings,
    ) -> None:
        super().__init__(message_type, spec.name, functions)
        self.spec = spec
        self.target: Target | None = None  # set before anything is published
        self._surroundings = surroundings
        self.source: Final = source
        self._shelf = Shelf(surroundings.log, self.is_fed_by)
        self._entrance = Entrance(spec, message_type, functions, self._expression_failed)
        self.core: Final = Queue(
            settings_of(spec),
            self._make_matching,
            instance,
            self.wake,
        )
        self.browsing: Final = Browsing(
            self.core, spec.name, message_type, functions, self._shelf, surroundings
        )
        self._functions = functions
        self._handle: TopicHandle | None = None
        self._deliveries: dict[Subscription, MessageDelivery] = {}
        self._outgoing: deque[Delivery] = deque()
        self._unsent: list[Delivery] = []  # their leaving has to be recorded first
        self._unrecorded: deque[Event] = deque()
        self._ahead: Cursor | None = None  # of messages beyond TargetQueueDepth
        self._waits_for_log = False
        self._is_awake = False
        self._is_stalled = False
        self._timer_at: int | None = None
        self._cancel_timer: Callable[[], None] = _nothing
        forgotten = Forgotten(self.core, spec.name, surroundings)
        surroundings.log.hold(self._needed_from, forgotten.in_the_way)

    def _make_matching(self) -> QueueMatching:
        return QueueMatching(
            self._shelf,
            self.message_type,
            self._functions,
            self._filter_failed,
            self._cannot_read,
        )

    def is_fed_by(self, topic: TopicName) -> bool:
        """Whether the messages of a topic are for this queue."""
        return topic.message_type == self.message_type.name and self.source.matches(topic.name)

    # messages come

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Publish to the topic that the queue's own name stands for (DefaultPublishTarget)."""
        assert self.target is not None  # noqa: S101 - set before anything is published
        return self.target.publish(bodies, envelope)

    def when_stored(self, then: Settled) -> None:
        """Call back when everything published so far is on stable storage."""
        self._surroundings.log.when_durable(lambda: then(None))

    def take(self, recorded: Recorded) -> None:
        """See `Feed.take`."""
        self._take(recorded)
        self.wake()

    def _take(self, recorded: Recorded) -> None:
        recorded, details = self._entrance.admit(recorded)
        if not recorded.bodies:
            return
        self._shelf.put(recorded)
        moments = [recorded.moment] * len(recorded.txids)
        self.core.enqueue(recorded.txids, moments, recorded.client, recorded.sequences, details)

    # consumers come and go

    def attach(self, subscription: Subscription) -> None:
        """Let a subscription consume, or go on in the place of the one that it replaces.

        One for a page or for groups of the messages looks at them only (AMPS User Guide,
        Aggregated Subscriptions), and so does the server's own.
        """
        if not _consumes(subscription):
            self.browsing.attach(subscription)
            return
        consumer = subscription.consumer
        assert consumer is not None  # noqa: S101 - every subscription may meet a queue
        wanted = None
        if subscription.filter is not None:
            wanted = Wanted(to_text(subscription.filter), subscription.filter)
        self._subscriptions[subscription] = None
        self.core.attach(consumer, wanted)
        self.wake()

    def detach(self, subscription: Subscription) -> None:
        """Let a subscription consume no more.

        What it has comes back, unless another subscription takes its place: that one keeps it.
        """
        if not _consumes(subscription):
            self.browsing.detach(subscription)
        if subscription not in self._subscriptions:
            return
        del self._subscriptions[subscription]
        self._deliveries.pop(subscription, None)
        consumer = subscription.consumer
        assert consumer is not None  # noqa: S101 - see attach
        if consumer.subscription is subscription:
            self.dismiss(consumer)
        elif consumer.subscription not in self._subscriptions:
            self.core.retire(consumer)

    def dismiss(self, consumer: Consumer) -> None:
        """Have back what a consumer has, also if it consumes here no more."""
        if consumer in self.core.dispatch.seats:
            self._deliveries.pop(cast("Subscription", consumer.subscription), None)
            self.core.detach(consumer, self._now)
            self._settle()

    @property
    def has_literal_subscription(self) -> bool:
        """A queue is never forgotten."""
        return True

    # delivery

    def wake(self) -> None:
        """Have it looked at who gets what, soon."""
        if not self._is_awake and not self._is_stalled:
            self._is_awake = True
            self._surroundings.queue(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`; it is for all consumers."""
        return "", "queue"

    def step(self) -> bool:
        """Deliver some messages. See `Sliced.step`."""
        is_short = self._admit_more()
        has_decided = not self._outgoing
        if has_decided:
            self._decide()
        self._send_some()
        if not self._is_stalled:
            if self._outgoing or self.core.is_behind or is_short or not has_decided:
                return True
            self._watch_time()
        self._is_awake = False
        return False

    def _admit_more(self) -> bool:
        """Let messages count that TargetQueueDepth has left out, as far as there is room.

        Returns:
            Whether there are more to be let in at once.
        """
        core, log = self.core, self._surroundings.log
        if not core.inactive:
            self._ahead = None
        wanted = min(core.wanted, _SENT_AT_ONCE)
        if not wanted or self._waits_for_log:
            return False
        cursor = self._ahead
        if cursor is None:
            cursor = log.journal.replay(Span(core.resume_txid - 1), self.is_fed_by, MESSAGES)
            self._ahead = cursor
        try:
            for run in cursor.read_on(wanted).runs():
                self._entrance.enter(run, core.admit)
        except JournalUnreadable as problem:
            self._cannot_read(problem)
            return False
        if core.wanted and cursor.is_caught_up:  # the rest is not on stable storage yet
            self._waits_for_log = True
            log.when_longer(self._log_is_longer)
            return False
        return core.wanted > 0

    def _log_is_longer(self) -> None:
        self._waits_for_log = False
        self.wake()

    def _decide(self) -> None:
        deliveries = self.core.deliver(self._now, _MATCHED_AT_ONCE, _SENT_AT_ONCE)
        if self.core.settings.at_most_once:
            self._unsent += deliveries
        else:
            self._outgoing += deliveries
        self._record()

    def _send_recorded(self, deliveries: Sequence[Delivery]) -> None:
        """Send what has left the queue by being sent: now nobody else gets it."""
        self._outgoing += deliveries
        self.wake()

    def _send_some(self) -> None:
        left = _SENT_AT_ONCE
        while self._outgoing and left > 0:
            delivery = self._outgoing.popleft()
            if len(delivery.txids) > left:
                self._outgoing.appendleft(_part(delivery, left, len(delivery.txids)))
                delivery = _part(delivery, 0, left)
            left -= len(delivery.txids)
            try:
                self._send(delivery)
            except JournalUnreadable as problem:
                self._outgoing.appendleft(delivery)
                self._cannot_read(problem)
                return

    def _send(self, delivery: Delivery) -> None:
        if delivery.consumer not in self.core.dispatch.seats:
            return  # it has gone meanwhile, and so have its leases
        subscription = cast("Subscription", delivery.consumer.subscription)  # that of now
        messages = self._shelf.get(self._still_leased(delivery))
        lease = lease_key(delivery.lease_until)
        there = [message for message in messages if message is not None]
        for _, run in groupby(there, _ALIKE):
            self._hand_over(subscription, QueueRun(list(run), lease))

    def _still_leased(self, delivery: Delivery) -> Sequence[int]:
        """The messages of a delivery that have not been acknowledged before they are sent.

        Anybody may acknowledge them, also before they come, or their lease may have ended.
        """
        if delivery.is_barrier:
            return delivery.txids
        leases, consumer = self.core.ledger.leases.by_place, delivery.consumer
        return [
            txid
            for txid, lease in zip(delivery.txids, map(leases.get, delivery.places), strict=True)
            if lease is not None and lease.seat.consumer is consumer
        ]

    def _hand_over(self, subscription: Subscription, run: QueueRun) -> None:
        try:
            delivery = self._deliveries.get(subscription)
            if delivery is None:
                delivery = self._deliveries[subscription] = self._delivery_for([subscription])
            if isinstance(delivery, DirectDelivery):
                delivery.deliver_run(run)
                return
            for position, body in enumerate(run.bodies):
                delivery.deliver((body,), run.envelope(position))
        except Exception as error:  # whatever it is, the other consumers must not pay for it
            give_up_on((subscription,), error)

    # acknowledgements

    def acknowledge(self, marks: Sequence[Mark], said: Said) -> Acknowledged:
        """Acknowledge messages by their bookmarks.

        Raises:
            JournalUnavailable: it cannot be recorded now. It takes effect all the same, and may be
                undone by a restart.
        """
        result = self.core.acknowledge(marks, self._now, said.client, said.way, said.delay)
        self._keep(said)
        return Acknowledged(len(marks), len(marks) - len(result.refused), result.done)

    def find_matching(self, expr: Expr) -> Iterator[Found]:
        """Find the messages that match a filter, whoever has them, little by little.

        Raises:
            UnmatchedError: messages cannot be read at the moment.
            Exception: whatever the filter fails with.
        """
        matching = QueueMatching(
            self._shelf, self.message_type, self._functions, _fail, self._cannot_read
        )
        matching.add(Wanted(to_text(expr), expr))
        txids = self.core.ledger.entries.txids
        for places in _batches(everything(self.core)):
            matched = matching.match(txids(places))
            found = [place for place, filters in zip(places, matched, strict=True) if filters]
            yield Found(len(places), found)

    def find_keys(self, keys: Iterable[str]) -> Iterator[Found]:
        """Find the messages with some SOW keys, little by little."""
        numbers = {int(key) for key in keys if key.isascii() and key.isdigit()}
        sow_key = self.core.ledger.entries.sow_key
        for places in _batches(everything(self.core)):
            found = [place for place in places if sow_key(place) in numbers]
            yield Found(len(found), found)

    def acknowledge_places(self, places: Sequence[int], said: Said) -> int:
        """Acknowledge messages that have been found.

        Returns:
            How many it took effect on.

        Raises:
            JournalUnavailable: as for `acknowledge`.
        """
        now = self._now
        result = self.core.acknowledge_places(places, now, said.client, said.way, said.delay)
        self._keep(said)
        return result.done

    @property
    def is_log_crowded(self) -> bool:
        """Whether more than enough waits to be written to the log."""
        journal = self._surroundings.log.journal
        return journal.is_crowded and journal.refusal is None

    def _keep(self, said: Said) -> None:
        """Record an acknowledgement, and look who can be given more."""
        self._record(said.publisher)
        self.wake()
        self._shelf.clear_up(self._first_needed())
        if self._unrecorded:
            raise JournalUnavailable("the transaction log takes nothing at the moment")

    # the record

    def recover(self, run: Run) -> None:
        """Take in again messages that were in the log before the start."""
        self._entrance.enter(run, self.core.enqueue)

    def replay(self, event: Event) -> None:
        """Let happen again what was in the log before the start."""
        self.core.replay(event)

    @property
    def is_recorded(self) -> bool:
        """Whether the log has been given all that has happened; tries to make it so."""
        self._record()
        return not self._unrecorded

    def finish_recovery(self) -> None:
        """Everything in the log has been taken in."""
        self.core.finish_recovery(self._now)
        self._settle()
        self.browsing.begin()

    def _settle(self) -> None:
        self._record()
        self.wake()

    def _record(self, publisher: tuple[int, int] = (0, 0)) -> None:
        """Put what has happened into the log; what it does not take is tried again."""
        events = self.core.take_events()
        self.browsing.take_events(events)
        self._unrecorded += events
        if not self._unrecorded and not self._unsent and not publisher[1]:
            return
        journal = self._surroundings.log.journal
        if self._handle is None:
            self._handle = journal.topic(self.message_type.name, self.name)
        client, sequence = publisher
        try:
            while self._unrecorded:
                body = encode(self._unrecorded[0])
                is_last = len(self._unrecorded) == 1
                number = sequence if is_last else 0
                journal.append(self._handle, client, number, body, Kind.QUEUE_EVENT)
                self._unrecorded.popleft()
                if is_last:
                    sequence = 0
            if sequence:
                journal.append(self._handle, client, sequence, b"", Kind.NO_OP)
        except JournalUnavailable:
            self._later(_RETRY_SECONDS)
            return
        if self._unsent:
            deliveries, self._unsent = self._unsent, []
            self._surroundings.log.when_durable(lambda: self._send_recorded(deliveries))

    def _needed_from(self) -> int:
        first = self._first_needed()
        return self._surroundings.log.last_txid + 1 if first is None else first

    def _first_needed(self) -> int | None:
        """The oldest message that somebody may ask for, None if there is none."""
        first, looked_at = self.core.oldest_txid, self.browsing.needed_from
        return min((txid for txid in (first, looked_at) if txid is not None), default=None)

    # time

    @property
    def _now(self) -> int:
        return int(self._surroundings.clock.now() * _MICROSECONDS)

    def _watch_time(self) -> None:
        moment = self.core.next_moment
        if self._unrecorded:
            return  # there is a timer, and after that it is looked again
        if moment is None or (self._timer_at is not None and self._timer_at <= moment):
            return
        self._later(max((moment - self._now) / _MICROSECONDS, _LEAST_DELAY))
        self._timer_at = moment

    def _later(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer_at = None
        self._cancel_timer = self._surroundings.clock.call_later(seconds, self._wake_by_timer)

    def _wake_by_timer(self) -> None:
        self._timer_at = None
        self._cancel_timer = _nothing
        self._is_stalled = False
        self._record()
        self.wake()

    # what goes wrong

    def _cannot_read(self, problem: JournalUnreadable) -> None:
        """Let everything wait for a while."""
        self._surroundings.events.emit("1D-0015", queue=self.name, problem=problem)
        self._is_stalled = True
        self._later(_RETRY_SECONDS)

    def _filter_failed(self, wanted: Wanted, error: Exception) -> None:
        concerned = [
            one
            for one in self._subscriptions
            if one.filter is not None and to_text(one.filter) == wanted.text
        ]
        give_up_on(concerned, error)

    def _expression_failed(self, error: Exception) -> None:
        self._surroundings.events.emit("1D-0016", queue=self.name, problem=error)


def _consumes(subscription: Subscription) -> bool:
    """Whether a subscription takes messages, instead of looking at them."""
    looks = subscription.page or subscription.aggregation or subscription.sink
    return looks is None


def _part(delivery: Delivery, start: int, stop: int) -> Delivery:
    return delivery._replace(
        txids=delivery.txids[start:stop],
        places=delivery.places[start:stop],
        marks=delivery.marks[start:stop],
    )


def _batches(places: Iterator[int]) -> Iterator[Sequence[int]]:
    """As many at a time as are looked at in a slice."""
    while batch := list(islice(places, _MATCHED_AT_ONCE)):
        yield batch


def _fail(_: Wanted, error: Exception) -> None:
    raise error


def _nothing() -> None:
    """No timer is set."""
