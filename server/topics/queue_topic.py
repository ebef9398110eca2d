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
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.expressions import to_text
from server.journal import MESSAGES, JournalUnavailable, JournalUnreadable, Kind, Span
from server.queues import Delivery, Event, Mark, Queue, Way, encode, settings_of
from server.queues.inspection import by_sow_keys, everything
from server.subscriptions.delivery import DirectDelivery
from server.subscriptions.failures import give_up_on
from server.topics.queue_entrance import Entrance
from server.topics.queue_matching import QueueMatching, Wanted
from server.topics.queue_messages import QueueRun, lease_key
from server.topics.queue_shelf import Shelf
from server.topics.topic import Topic

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.base.clock import Clock
    from server.base.log import Log
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
    from server.topics.queue_shelf import Shelved
    from server.topics.transaction_log import TransactionLog

_MICROSECONDS: Final = 1_000_000
_SENT_AT_ONCE: Final = 256
"""Messages of a slice."""
_RETRY_SECONDS: Final = 1.0
"""Until it is tried again to read from, or to write to, a log that refuses."""
_LEAST_DELAY: Final = 0.001


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


class Surroundings:
    """What queues need of the server.

    Attributes:
        log: the transaction log.
        clock: tells the time.
        queue: has work done in slices.
        flush: lets leave what has been written, when a timer has made it.
        events: where is written what happens.
    """

    def __init__(
        self,
        log: TransactionLog,
        clock: Clock,
        queue: Callable[[QueueTopic], None],
        flush: Callable[[], None],
        events: Log,
    ) -> None:
        self.log: Final = log
        self.clock: Final = clock
        self.queue: Final = queue
        self.flush: Final = flush
        self.events: Final = events


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
    """

    __slots__ = (
        "_ahead",
        "_cancel_timer",
        "_entrance",
        "_functions",
        "_handle",
        "_is_awake",
        "_outgoing",
        "_shelf",
        "_surroundings",
        "_timer_at",
        "_unrecorded",
        "_unsent",
        "_waits_for_log",
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
        )
        self._functions = functions
        self._handle: TopicHandle | None = None
        self._outgoing: deque[Delivery] = deque()
        self._unrecorded: deque[Event] = deque()
        self._unsent: list[Delivery] = []
        self._ahead: Cursor | None = None  # of messages beyond TargetQueueDepth
        self._waits_for_log = False
        self._is_awake = False
        self._timer_at: int | None = None
        self._cancel_timer: Callable[[], None] = _nothing
        surroundings.log.hold(self._needed_from)

    def _make_matching(self) -> QueueMatching:
        return QueueMatching(self._shelf, self.message_type, self._functions, self._filter_failed)

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
        """Let a subscription consume, or go on in the place of the one that it replaces."""
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
        if subscription not in self._subscriptions:
            return
        del self._subscriptions[subscription]
        consumer = subscription.consumer
        assert consumer is not None  # noqa: S101 - see attach
        if consumer.subscription is subscription:
            self.dismiss(consumer)
        elif consumer.subscription not in self._subscriptions:
            self.core.retire(consumer)

    def dismiss(self, consumer: Consumer) -> None:
        """Have back what a consumer has, also if it consumes here no more."""
        self.core.detach(consumer, self._now)
        self._settle()

    @property
    def has_literal_subscription(self) -> bool:
        """A queue is never forgotten."""
        return True

    # delivery

    def wake(self) -> None:
        """Have it looked at who gets what, soon."""
        if not self._is_awake:
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
        if self._outgoing or self.core.is_behind or is_short or not has_decided:
            return True
        self._is_awake = False
        self._watch_time()
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
        try:
            deliveries = self.core.deliver(self._now)
        except JournalUnreadable as problem:
            self._cannot_read(problem)
            return
        self._record()
        if not self.core.settings.at_most_once:
            self._outgoing += deliveries
            return
        self._unsent += deliveries
        if self._unsent and not self._unrecorded:  # else the log takes nothing at the moment
            unsent, self._unsent = self._unsent, []
            self._surroundings.log.when_durable(lambda: self._send_recorded(unsent))

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
            self._send(delivery)

    def _send(self, delivery: Delivery) -> None:
        subscription = delivery.consumer.subscription
        if subscription not in self._subscriptions:
            return  # it has gone meanwhile, and so have its leases
        try:
            messages = self._shelf.get(delivery.txids)
        except JournalUnreadable as problem:
            self._cannot_read(problem)
            self._outgoing.appendleft(delivery)
            return
        lease = lease_key(delivery.lease_until)
        there = [message for message in messages if message is not None]
        for _, run in groupby(there, _alike):
            self._hand_over(subscription, QueueRun(list(run), lease))

    def _hand_over(self, subscription: Subscription, run: QueueRun) -> None:
        try:
            delivery = self._delivery_for([subscription])
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

    def acknowledge_matching(self, expr: Expr, said: Said) -> Acknowledged:
        """Acknowledge all messages that match a filter, whoever has them.

        Raises:
            JournalUnavailable: as for `acknowledge`, or the messages cannot be read at the moment.
        """
        matching = self._make_matching()
        wanted = Wanted(to_text(expr), expr)
        matching.add(wanted)
        ledger = self.core.ledger
        places = list(everything(self.core))
        found: list[int] = []
        try:
            for start in range(0, len(places), _SENT_AT_ONCE):
                part = places[start : start + _SENT_AT_ONCE]
                matched = matching.match(ledger.entries.txids(part))
                found += [at for at, filters in zip(part, matched, strict=True) if filters]
        except JournalUnreadable as problem:
            raise JournalUnavailable(str(problem)) from None
        return self._acknowledge_places(found, len(places), said)

    def acknowledge_keys(self, keys: Sequence[str], said: Said) -> Acknowledged:
        """Acknowledge all messages with some SOW keys.

        Raises:
            JournalUnavailable: as for `acknowledge`.
        """
        numbers = {int(key) for key in keys if key.isascii() and key.isdigit()}
        places = list(by_sow_keys(self.core, numbers))
        return self._acknowledge_places(places, len(places), said)

    def _acknowledge_places(
        self, places: Sequence[int], looked_at: int, said: Said
    ) -> Acknowledged:
        now = self._now
        result = self.core.acknowledge_places(places, now, said.client, said.way, said.delay)
        self._keep(said)
        return Acknowledged(looked_at, len(places), result.done)

    def _keep(self, said: Said) -> None:
        """Record an acknowledgement, and look who can be given more."""
        self._record(said.publisher)
        self.wake()
        self._shelf.clear_up(self.core.needed_from)
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

    def _settle(self) -> None:
        self._record()
        self.wake()

    def _record(self, publisher: tuple[int, int] = (0, 0)) -> None:
        """Put what has happened into the log; what it does not take is tried again."""
        self._unrecorded += self.core.take_events()
        if not self._unrecorded and not publisher[1]:
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

    def _needed_from(self) -> int:
        first = self.core.needed_from
        return self._surroundings.log.last_txid + 1 if first is None else first

    # time

    @property
    def _now(self) -> int:
        return int(self._surroundings.clock.now() * _MICROSECONDS)

    def _watch_time(self) -> None:
        moment = self.core.next_moment
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
        self._record()
        self.wake()

    # what goes wrong

    def _cannot_read(self, problem: JournalUnreadable) -> None:
        self._surroundings.events.emit("1D-0015", queue=self.name, problem=problem)
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


def _alike(message: Shelved) -> tuple[int, bytes]:
    """Messages with the same go together."""
    return message.origin.client, message.origin.envelope.keys


def _part(delivery: Delivery, start: int, stop: int) -> Delivery:
    return delivery._replace(
        txids=delivery.txids[start:stop],
        places=delivery.places[start:stop],
        marks=delivery.marks[start:stop],
    )


def _nothing() -> None:
    """No timer is set."""
