"""A queue as a topic: messages enter from the log, and are delivered to one consumer each.

    publish --> underlying topic --> log --> QueueTopic.receive_batch --> MessageLifecycle.enqueue
    a time slice --> QueueDeliveryTask.step --> Queue.deliver --> the consumers' outboxes
    sow_delete --> QueueAckHandler.acknowledge --> Queue.acknowledge --> an entry of the log

The core (server/queues/core/) makes all decisions. This package connects it to the server: bodies,
the log, time slices and timers, and the connections of consumers. Every event of the core is
recorded in the log under the queue's own name, before any later event.

Source: AMPS User Guide, Message Queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from server.expressions import to_text
from server.queues.core import (
    Cancelled,
    DomainQueueEvent,
    Expired,
    Queue,
    decode_with_domain,
    settings_of,
)
from server.queues.core.events import shifted, with_delays_from
from server.queues.core.inspection import leases_of
from server.queues.core.message_state import earlier
from server.queues.topic.acknowledgement import QueueAckHandler
from server.queues.topic.browser import QueueBrowser
from server.queues.topic.dead_letters import DeadLetterPublisher
from server.queues.topic.delivery import QueueDeliveryTask
from server.queues.topic.depth_refill import DepthRefill
from server.queues.topic.enqueue import Enqueuer
from server.queues.topic.filter_matcher import ConsumerFilter, QueueFilterMatcher
from server.queues.topic.journal_retention_log import QueueRetentionLog
from server.queues.topic.message_cache import MessageCache
from server.queues.topic.queue_journal import QueueJournal
from server.queues.topic.redrive import DeadLetterRedrive
from server.queues.topic.scratch_memory import ScratchMemory
from server.queues.topic.shared_queue import SharedQueue
from server.security.permissions import UNLIMITED
from server.storage.journal import JournalTopic
from server.storage.journal.write.blocks import each
from server.topics.log_feed import join_batches
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.topic import Topic
from server.topics.topic_journal import TopicJournal

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.expressions import Functions
    from server.expressions.topic_names import TopicSelector
    from server.message_types.base import MessageType
    from server.queues.core import Consumer
    from server.queues.topic.context import QueueServices
    from server.queues.topic.redrive import RedrivePublishers
    from server.security.permissions import Permit
    from server.storage.journal import EntryBatch
    from server.storage.sow.store import StoreCallback
    from server.topics.log_feed import RecordedBatch
    from server.topics.replicated.batch import ReplicatedBatch
    from server.topics.subscriptions.delivery.delivery import Delivery, FrameWriter
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.message_refusal import MessageRefusal
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.topic_table import AnyTopic

_RETURN_BATCH_SIZE: Final = 256
"""Messages of a departing consumer that return to the queue per time slice."""
_MAX_RECEIVED: Final = 1024
"""Messages that may wait to be enqueued: enqueuing them takes about a time slice."""


class QueueTopic(Topic):
    """One queue.

    Args:
        spec: its configuration.
        message_type: parses bodies.
        functions: the functions that expressions may call.
        instance: the name of this instance.
        source: the topics that feed it.
        redrive_publishers: see `Enqueuer`.
        services: the server's services for the queue.

    Attributes:
        core: makes all decisions.
        browser: read-only access to the messages.
        shared_queue: shares the queue with other instances.
        dead_letters: publishes messages that have left without having been acknowledged.
        queue_journal: appends the queue's events to the log.
        ack_handler: executes acknowledgements.
        dead_letter_redrive: publishes dead letters again, if the queue holds any.
        is_closed: the queue has been removed.
    """

    is_persistent = True
    accepts_slices = False
    is_journaled = True

    def __init__(
        self,
        spec: QueueSpec,
        message_type: MessageType,
        functions: Functions,
        instance: str,
        source: TopicSelector,
        redrive_publishers: RedrivePublishers,
        services: QueueServices,
    ) -> None:
        super().__init__(message_type, spec.name, functions)
        log = services.log
        self.spec: Final = spec
        self.source: Final = source
        self._services: Final = services
        self._journal: Final = TopicJournal(log, message_type.name, spec.name)
        self._message_cache: Final = MessageCache(log, self.is_fed_by)
        self._received: list[RecordedBatch] = []  # not enqueued yet
        self._received_count = 0  # of messages
        self._received_lead_us = 0  # of the wall clock when they were recorded
        self.shared_queue: Final = SharedQueue(spec, instance, self.wake, services)
        self._enqueuer: Final = Enqueuer(
            spec,
            message_type,
            functions,
            self._on_expression_failure,
            self.shared_queue.first_owner,
            redrive_publishers,
            services.steady_times,
        )
        self.core: Final = Queue(
            settings_of(spec),
            lambda: self._make_matcher(self._on_filter_failure),
            instance,
            self._wake_for_room,
            self.shared_queue.was_recorded,
            ScratchMemory(log.journal.directory, self._log_out_of_space)
            if spec.file_backed_metadata
            else None,
            self.shared_queue.is_missing,
            self._enqueue_received,
        )
        self.browser: Final = QueueBrowser(
            self.core, spec.name, message_type, functions, self._message_cache, services
        )
        self.dead_letters: Final = DeadLetterPublisher(spec, self.browser.read, services)
        self.queue_journal: Final = QueueJournal(
            self.core,
            spec.name,
            message_type.name,
            self.shared_queue.domain,
            self.browser,
            self.dead_letters,
            services,
        )
        self.shared_queue.begin(self.core, self.queue_journal)
        self._delivery_task: Final = QueueDeliveryTask(
            self.core,
            spec.name,
            self._message_cache,
            DepthRefill(self.core, self._enqueuer, log, self.is_fed_by, self.wake),
            self.queue_journal,
            self.shared_queue,
            self._delivery_for,
            services,
        )
        self.ack_handler: Final = QueueAckHandler(
            self.core, self.queue_journal, self._make_matcher, self._evict_and_wake, services
        )
        self.dead_letter_redrive: Final = DeadLetterRedrive(
            self.core, message_type.name, self.browser.read, self.ack_handler, services
        )
        self._recorded_topics: Final = (
            JournalTopic(message_type.name, spec.name),
            JournalTopic(message_type.name, spec.default_publish_target),
        )
        retention_log = QueueRetentionLog(self.core, spec.name, services)
        self._release_files: Final = log.hold_files(
            self._retention_txid, f"queue {spec.name}", retention_log.log_retained_journal
        )
        self.is_closed = False

    def close(self) -> None:
        """End deliveries and leases, and release the log; dead letters of the past are published.

        Called when the queue has been removed, or has not been added.
        """
        for consumer in tuple(self.core.dispatch.slots):
            self.detach_consumer(consumer)
        self.is_closed = True
        self._delivery_task.close()
        self._release_files()

    def _make_matcher(
        self, on_failure: Callable[[ConsumerFilter, Exception], None]
    ) -> QueueFilterMatcher:
        return QueueFilterMatcher(
            self._message_cache,
            self.message_type,
            self._functions,
            on_failure,
            self._delivery_task.pause_on_read_error,
            partial(leases_of, self.core),
        )

    @property
    def bytes_received(self) -> int:
        """Bytes of the messages received since the start."""
        self._enqueue_received()
        return self._message_cache.bytes_recorded

    @property
    def bytes_cached(self) -> int:
        """Bytes of messages that are in memory."""
        self._enqueue_received()
        return self._message_cache.memory_bytes

    def is_fed_by(self, topic: JournalTopic) -> bool:
        """Return True if the messages of a topic are for this queue."""
        return topic.message_type == self.message_type.name and self.source.matches(topic.name)

    def _delivery_for(self, group: Sequence[Subscription]) -> Delivery:
        """See `Topic`. Callers pass subscriptions as requested; their effective forms are used."""
        return super()._delivery_for([self._effective_form(subscription) for subscription in group])

    def _writer_for(self, subscription: Subscription) -> FrameWriter:
        """See `Topic`."""
        outbox = subscription.outbox
        return outbox.counting_writer(outbox.traffic.queue)

    # received messages

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Publish to the queue's DefaultPublishTarget."""
        return self.publish_target.publish(bodies, envelope)

    @property
    def publish_target(self) -> AnyTopic:
        """The queue's DefaultPublishTarget."""
        return self._services.topics.topic_behind_queue(
            self.message_type.name, self.name, self.spec.default_publish_target
        )

    def when_settled(self, callback: StoreCallback) -> None:
        """Call `callback` when all messages and acknowledgements received so far are settled."""
        self._services.log.when_settled(lambda: callback(None), *self._recorded_topics)

    def receive_batch(self, recorded: RecordedBatch) -> None:
        """See `LogFeed.receive_batch`.

        The messages are enqueued by the next delivery slice, or before anything else that depends
        on them: enqueuing a batch costs about as much as some twenty messages of it.
        """
        lead_us = self._services.wall_clock_lead_us
        if lead_us != self._received_lead_us:  # the wall clock has been set
            self._enqueue_received()
            self._received_lead_us = lead_us
        self._received.append(recorded)
        self._received_count += len(recorded.txids)
        if self._received_count >= _MAX_RECEIVED or self._delivery_task.is_paused:
            self._enqueue_received()
        self.wake()

    def _enqueue_received(self) -> None:
        """Enqueue the messages that have been received and not enqueued yet."""
        if not self._received:
            return
        received, self._received, self._received_count = self._received, [], 0
        lead_us = self._received_lead_us
        for batch in join_batches(received):
            recorded, details = self._enqueuer.select_messages(batch)
            if not recorded.bodies:
                continue
            self._message_cache.cache_recorded(recorded)
            timestamps_us, count = recorded.timestamps_us, len(recorded.txids)
            times = [time_us - lead_us for time_us in each(timestamps_us, count)]
            self.core.enqueue(recorded.txids, times, recorded.client, recorded.sequences, details)

    def report_double_publish(
        self, bookmarks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """See `LogFeed.report_double_publish`."""
        if self.shared_queue.is_shared:
            owner = self.shared_queue.resolve_dual_owner(publishers)
            self.core.resolve_dual_ownership(bookmarks, owner, self._services.now_us)
            self._record_and_wake()

    def process_batch(self, arrivals: ReplicatedBatch) -> None:
        """Record and apply some queue events of another instance.

        The other instance publishes their dead letters.
        """
        bodies, start = arrivals.bodies, arrivals.position
        appended = self._journal.append_copies(arrivals, arrivals.next_content())
        for txid, body in zip(appended.txids, bodies[start:], strict=False):
            try:
                event = decode_with_domain(body)
            except msgspec.MsgspecError as problem:
                self._services.events.emit("1D-0017", queue=self.name, txid=txid, problem=problem)
            else:
                self.shared_queue.apply_remote_event(event)
        self._record_and_wake()

    # consumers

    @property
    def subscriptions(self) -> Collection[Subscription]:
        """See `SubscriberSet.subscriptions`; also those that only follow the messages."""
        return (*super().subscriptions, *self.browser.record_topic.subscriptions)

    def attach(self, subscription: Subscription, permit: Permit = UNLIMITED) -> None:
        """Add a subscription as a consumer, or replace the subscription of an existing consumer.

        A subscription to a page or to groups of the messages only follows them (AMPS User Guide,
        Aggregated Subscriptions), and so does one of the server itself.
        """
        consumer = _consumer_of(subscription)
        if consumer is None:
            self.browser.attach(subscription, permit)
            return
        effective_form, consumer_filter = self._apply_permit(subscription, permit), None
        if effective_form.filter is not None:
            consumer_filter = ConsumerFilter(to_text(effective_form.filter), effective_form.filter)
        self._subscriptions[subscription] = None
        self.core.attach(consumer, consumer_filter)
        self.wake()

    def detach(self, subscription: Subscription) -> None:
        """Remove a subscription.

        Its messages return to the queue, unless another subscription replaces it and keeps them.
        """
        consumer = _consumer_of(subscription)
        if consumer is None:
            self.browser.detach(subscription)
        elif subscription in self._subscriptions:
            del self._subscriptions[subscription]
            self._effective_forms.pop(subscription, None)
            self._delivery_task.forget_subscription(subscription)
            if consumer.subscription is subscription:
                self.detach_consumer(consumer)
            elif consumer.subscription not in self._subscriptions:
                self.core.retire(consumer)

    def cost_of(self, subscription: Subscription) -> FilterCost | None:
        """See `SubscriberSet.cost_of`; None for followers, whose filters others evaluate."""
        filter_ = self._effective_form(subscription).filter
        if filter_ is None or subscription not in self._subscriptions:
            return None
        consumer_filter = ConsumerFilter(to_text(filter_), filter_)
        costs = [
            scan.matcher.cost(consumer_filter, self.name)
            for scan in self.core.dispatch.scans
            if isinstance(scan.matcher, QueueFilterMatcher)
        ]
        return next(filter(None, costs), None)

    def detach_consumer(self, consumer: Consumer) -> None:
        """Detach a consumer and return all its messages, even if its subscription has ended."""
        if consumer in self.core.dispatch.slots:
            self._delivery_task.forget_subscription(cast("Subscription", consumer.subscription))
            self.core.detach(consumer, self._services.now_us)
            self._record_and_wake()

    def detach_consumer_batch(self, consumer: Consumer) -> bool:
        """Return a batch of a departing consumer's messages; True if more than one may be left."""
        if not self.core.detach_batch(consumer, self._services.now_us, _RETURN_BATCH_SIZE):
            return False
        self._record_and_wake()
        return True

    @property
    def has_literal_subscription(self) -> bool:
        """Always true: a queue is never removed from the topic registry."""
        return True

    # events

    def wake(self) -> None:
        """Schedule a delivery slice."""
        self._delivery_task.wake()

    def _wake_for_room(self) -> None:
        self._delivery_task.wake_for_room()

    def recover_messages(self, batch: EntryBatch) -> None:
        """Enqueue messages that were in the log before the start."""
        self._enqueuer.enqueue_entries(batch, self.core.enqueue)

    def replay(self, domain_event: DomainQueueEvent, txid: int, arrived_at: int | None) -> None:
        """Apply an event that was in the log before the start.

        Args:
            domain_event: the event.
            txid: the txid of its entry.
            arrived_at: the time at which it arrived from another instance, which publishes its dead
                letters; None if it happened here.
        """
        correction = self._services.log.journal.clock_steps.correction(txid)
        correction -= self._services.wall_clock_lead_us
        event = shifted(domain_event.event, correction)
        if isinstance(event, Cancelled):
            event = with_delays_from(event, self._services.now_us)
        arrived_at = None if arrived_at is None else arrived_at + correction
        self.shared_queue.replay(DomainQueueEvent(domain_event.domain, event), arrived_at)
        if isinstance(domain_event.event, Expired) and arrived_at is None:
            self.dead_letters.add_expired(domain_event.event, txid)

    def finish_recovery(self) -> None:
        """Start normal operation; called when all of the log has been applied."""
        self.core.finish_recovery(self._services.now_us)
        self._record_and_wake()
        self.browser.begin()
        self.dead_letters.begin()

    def _record_and_wake(self) -> None:
        self.queue_journal.write()
        self.wake()

    def _evict_and_wake(self) -> None:
        """Free cached messages that have left the queue, and let consumers have others."""
        self._wake_for_room()
        self._message_cache.evict_before(self._first_needed_txid())

    def _retention_txid(self) -> int:
        first = self._first_needed_txid()
        return self._services.log.last_txid + 1 if first is None else first

    def _first_needed_txid(self) -> int | None:
        """Return the oldest txid that may still be read, None if there is none."""
        first = earlier(self.core.oldest_txid, self.browser.first_needed_txid)
        return earlier(first, self.dead_letters.first_needed_txid)

    # failures

    def _on_filter_failure(self, consumer_filter: ConsumerFilter, error: Exception) -> None:
        subscriptions = [
            subscription
            for subscription in self._subscriptions
            if (filter_ := self._effective_form(subscription).filter) is not None
            and to_text(filter_) == consumer_filter.text
        ]
        end_failed_subscriptions(subscriptions, error)

    def _log_out_of_space(self, problem: OSError) -> None:
        self._services.events.emit("1D-0021", queue=self.name, problem=problem.strerror)

    def _on_expression_failure(self, error: Exception) -> None:
        self._services.events.emit("1D-0016", queue=self.name, problem=error)


def _consumer_of(subscription: Subscription) -> Consumer | None:
    """Return the consumer of a subscription, None if it only follows the messages."""
    follower_form = subscription.page or subscription.aggregation or subscription.sink
    return subscription.consumer if follower_form is None else None
