"""All topics in use, and their subscriptions.

A topic is created when it is first published or subscribed to; later one dictionary access finds
it. Subscriptions to a regular expression are matched against a topic's name once, when one of the
two appears (server/topics/pattern_index.py). Topics without a subscription by name cost memory, as
do their subscriptions by regular expressions, and can be recreated as they were. When there are too
many, they are forgotten, some hundreds at a time. `generation` notifies holders of topics of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.expressions.regex.budget import SearchAllowance
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.journaled_topic import JournaledSowTopic, JournaledTopic
from server.topics.pattern_index import PatternIndex
from server.topics.sow_topic import DerivedTopic, RecordTopic, SowTopic
from server.topics.subscriptions.limits.failures import QueueRemovedError, end_failed_subscriptions
from server.topics.subscriptions.subscription import Subscription
from server.topics.topic import NULL_TOPIC, NullTopic, Topic
from server.topics.topic_journal import TopicJournal

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.queues.topic.queue_table import QueueTable
    from server.security.permissions import Permit
    from server.storage.sow.records import RecordChange
    from server.topics.record_source import RecordSource
    from server.topics.sow_registry import SowRegistry
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.transaction_log import TransactionLog
    from server.util.task import EngineTask

AnyTopic: TypeAlias = Topic | SowTopic | DerivedTopic

_MAX_KEPT: Final = 64 * 1024 * 1024
_TOPIC_BYTES: Final = 8_192
_CHARACTER_BYTES: Final = 8
_ATTACHMENT_BYTES: Final = 1_024
"""The most bytes kept for a topic, a character of its name and a subscription to it."""
_AD_HOC: Final = (Topic, JournaledTopic)
"""Topics that have no state except their subscribers."""
_ATTACH_BATCH_SIZE: Final = 200
"""Topics that a subscription is attached to, or detached from, in one time slice."""
_LOOKUP_BATCH_SIZE: Final = 500
"""Topics checked in one time slice for whether they may be forgotten."""


class _PendingAttachment(NamedTuple):
    """The rest of the work for a subscription that has been attached to ad hoc topics.

    Attributes:
        topics: the topics that have not been examined.
        search_allowance: counts long searches in names.
    """

    topics: list[AnyTopic]
    search_allowance: SearchAllowance


class TopicTable:
    """The topics of an instance, by message type and name.

    Args:
        message_types: the types that topics are scoped to, by name.
        functions: the functions that filters may call.
        sow_registry: the topics that have records.
        queue_task: queues work for its time slices; see `Scheduler.queue_task`.
        max_kept_bytes: bytes that topics may use before idle ones are forgotten.

    Attributes:
        transaction_log: records publishes to some of the topics; None if there is none. It is set
            before the first topic that it records is used.
        queues: the queues, None if there are none. A reload can add some.
        generation: increases when topics have been forgotten, or may have to be looked up again; a
            topic found before may then be stale.
    """

    def __init__(
        self,
        message_types: Mapping[str, MessageType],
        functions: Functions,
        sow_registry: SowRegistry,
        queue_task: Callable[[EngineTask], None],
        max_kept_bytes: int = _MAX_KEPT,
    ) -> None:
        self.generation = 0
        self.transaction_log: TransactionLog | None = None
        self.queues: QueueTable | None = None
        self._message_types = message_types
        self._functions = functions
        self._sow_registry = sow_registry
        self._queue_task = queue_task
        self._max_kept_bytes = max_kept_bytes
        self._kept_bytes = 0  # bytes that topics use, or used before subscriptions ended
        self._unchecked_topics: list[tuple[str, str]] = []  # topics to check for being idle
        self._topics: dict[tuple[str, str], AnyTopic] = {}
        self._behind_queues: dict[tuple[str, str], AnyTopic] = {}
        self._patterns = defaultdict[str, PatternIndex](PatternIndex)  # by message type
        # the topics that subscriptions by regular expression are attached to
        self._attached_topics: dict[Subscription, set[AnyTopic]] = {}
        # The rest of the work for `subscribe`.
        self._pending_attachments: dict[Subscription, _PendingAttachment] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def use_queues(self, queues: QueueTable) -> None:
        """Reserve the names of queues for them. Called before any topic is used."""
        self.queues = queues
        for queue in queues:
            self.find(queue.message_type.name, queue.name)

    def find(self, message_type: str, name: str) -> AnyTopic:
        """Return a topic, creating it if necessary."""
        topic = self._topics.get((message_type, name))
        if topic is None:
            topic = self._make_topic(message_type, name)
            self._add_topic(message_type, name, topic)
        return topic

    def is_in_use(self, message_type: str, name: str) -> bool:
        """Return whether a topic has been published or subscribed to, and is not forgotten."""
        return (message_type, name) in self._topics

    def subscribe(self, subscription: Subscription) -> None:
        """Attach a subscription to all topics that it selects, present and future.

        If that fails, the subscription is attached to none.

        Raises:
            TooCostlyError: matching topic names takes too many steps.
        """
        message_type = subscription.subscriber.message_type
        selector = subscription.selector
        try:
            if not selector.is_regex:
                _attach_if_entitled(self.find(message_type, selector.text), subscription)
                return
            if subscription not in self._pending_attachments:
                for _ in self.attach_in_steps(subscription):
                    pass
            left = self._pending_attachments.pop(subscription)
            for topic in left.topics:
                self._attach(topic, subscription, left.search_allowance)
        except Exception:  # of any kind: later topics must not find half a subscription
            self.unsubscribe(subscription)
            raise

    def subscribe_permitted(self, subscription: Subscription, permit: Permit) -> None:
        """Attach a subscription to the one topic that it names. See `subscribe`.

        Args:
            subscription: the subscription, which is no replay.
            permit: its user's permission to read the topic, and the filter that comes with it.
        """
        try:
            topic = self.find(subscription.subscriber.message_type, subscription.selector.text)
            topic.attach(subscription, permit)
        except Exception:  # of any kind: nothing of the subscription may remain
            self.unsubscribe(subscription)
            raise

    def attach_in_steps(self, subscription: Subscription) -> Iterator[None]:
        """Attach a subscription by regular expression to ad hoc topics, some in each step.

        Ad hoc topics need not be attached at the same moment; the others are left to `subscribe`,
        which has to follow. If there are few topics, the only step is the last, which yields
        nothing.

        Raises:
            TooCostlyError: matching topic names takes too many steps.
        """
        left = self._pending_attachments[subscription] = _PendingAttachment([], SearchAllowance())
        self._attached_topics[subscription] = set()
        message_type = subscription.subscriber.message_type
        topics = self._of_type(message_type)
        self._patterns[message_type].add(subscription)
        for number, topic in enumerate(topics, 1):
            if type(topic) not in _AD_HOC:
                left.topics.append(topic)
            elif self._topics.get((message_type, topic.name)) is topic:  # not forgotten meanwhile
                self._attach(topic, subscription, left.search_allowance)
            if number % _ATTACH_BATCH_SIZE == 0 and number < len(topics):
                yield

    def _attach(self, topic: AnyTopic, subscription: Subscription, effort: SearchAllowance) -> None:
        """Attach a subscription to a topic if its regular expression matches the topic's name."""
        if not subscription.matches_topic(topic.name, effort):
            return
        attached = self._attached_topics[subscription]
        attached.add(topic)  # in any case, `unsubscribe` detaches it from this topic
        if _attach_if_entitled(topic, subscription):
            self._kept_bytes += _ATTACHMENT_BYTES
        else:
            attached.discard(topic)

    def detach_batch(self, subscription: Subscription) -> bool:
        """Detach a subscription from some topics, before `unsubscribe`, if it has very many.

        If it holds very many messages of a queue, some of these return to the queue.

        Returns:
            Whether much is left to detach.
        """
        consumer = subscription.consumer
        if consumer is not None and consumer.subscription is subscription:
            for queue in self.queues or ():
                if queue.detach_consumer_batch(consumer):
                    return True
        attached = self._attached_topics.get(subscription, set())
        if len(attached) <= _ATTACH_BATCH_SIZE:
            return False
        self._patterns[subscription.subscriber.message_type].remove(subscription)
        for _ in range(_ATTACH_BATCH_SIZE):
            attached.pop().detach(subscription)
        return True

    def unsubscribe(self, subscription: Subscription) -> None:
        """Detach a subscription from all its topics; it then holds no messages of queues.

        A subscription that has been replaced leaves its queue messages to its replacement.
        """
        consumer = subscription.consumer
        if consumer is not None and consumer.subscription is subscription:
            for queue in self.queues or ():
                queue.detach_consumer(consumer)
        message_type = subscription.subscriber.message_type
        selector = subscription.selector
        if not selector.is_regex:
            known = self._topics.get((message_type, selector.text))
            if known is not None:
                known.detach(subscription)
            return
        self._patterns[message_type].remove(subscription)
        self._pending_attachments.pop(subscription, None)
        for topic in self._attached_topics.pop(subscription, ()):
            topic.detach(subscription)

    def topics_of(self, subscription: Subscription) -> Collection[AnyTopic]:
        """Return the topics that a subscription gets messages from without a replay."""
        selector = subscription.selector
        if selector.is_regex:
            return self._attached_topics.get(subscription, ())
        topic = self._topics.get((subscription.subscriber.message_type, selector.text))
        return () if topic is None else (topic,)

    def topic_names(self, message_type: str) -> Iterator[str]:
        """Return the names of the topics of a message type."""
        return (name for type_name, name in self._topics if type_name == message_type)

    def invalidate(self) -> None:
        """Make all holders of topics look them up, and check permissions, once more."""
        self.generation += 1

    def renew(self, is_concerned: Callable[[str, str], bool]) -> None:
        """Recreate topics after their records, queue or recording have changed; subscriptions stay.

        A subscription that the new topic cannot serve is ended, and so is one to a queue, by its
        name, that is a queue no more.

        Args:
            is_concerned: returns whether to recreate a topic, by its message type and name.
        """
        for key in [key for key in self._topics if is_concerned(*key)]:
            topic = self._make_topic(*key)  # if that fails, the subscriptions stay with the old one
            old = self._topics.pop(key)
            subscriptions = list(old.subscriptions)
            self._kept_bytes -= _size_of(old)
            for subscription in subscriptions:
                old.detach(subscription)
                if subscription.selector.is_regex:
                    self._attached_topics[subscription].discard(old)
                else:
                    self._kept_bytes += _ATTACHMENT_BYTES  # they are not counted by `subscribe`
            self._behind_queues.pop(key, None)
            self._add_topic(*key, topic)
            for subscription in subscriptions:
                if not subscription.selector.is_regex:
                    _attach_or_end(topic, subscription)
        self.generation += 1

    def subscriptions_to(self, message_type: str, name: str) -> Collection[Subscription]:
        """Return the subscriptions to a topic, by its name and by regular expressions."""
        topic = self._topics.get((message_type, name))
        found = () if topic is None else topic.subscriptions
        return {*found, *self._patterns[message_type].subscriptions_for(name)}

    def update_feeds(self) -> None:
        """Notify the queues that there are now of recorded messages; some have been added."""
        queues = self.queues
        if queues is None:
            return
        for (message_type, name), topic in (*self._topics.items(), *self._behind_queues.items()):
            if isinstance(topic, JournaledTopic | JournaledSowTopic):
                topic.journal.feeds = queues.fed_by(message_type, name)

    def count_attachments(self, is_concerned: Callable[[str, str], bool]) -> int:
        """Return the number of subscriptions to some topics; see `renew`."""
        return sum(
            topic.subscription_count for key, topic in self._topics.items() if is_concerned(*key)
        )

    def _of_type(self, message_type: str) -> list[AnyTopic]:
        return [
            topic for (type_name, _), topic in self._topics.items() if type_name == message_type
        ]

    def announce(
        self, message_type: str, changes: Iterable[RecordChange], envelope: Envelope, reason: str
    ) -> None:
        """Notify subscribers of changes of records that did not come from a publish.

        Args:
            message_type: the type of the topics concerned.
            changes: the changes of records.
            envelope: their origin.
            reason: the reason sent to subscriptions that no longer match.
        """
        for change in changes:
            topic = self.find(message_type, change.topic)
            if isinstance(topic, RecordTopic):
                topic.announce(change, envelope, reason)

    def _add_topic(self, message_type: str, name: str, topic: AnyTopic) -> None:
        for subscription in self._patterns[message_type].subscriptions_for(name):
            try:
                if _attach_if_entitled(topic, subscription):
                    self._attached_topics[subscription].add(topic)
            except Exception as error:  # of any kind: the user of the topic must not be affected
                end_failed_subscriptions((subscription,), error)
        self._topics[message_type, name] = topic
        self._kept_bytes += _size_of(topic)
        if self._kept_bytes > self._max_kept_bytes and not self._unchecked_topics:
            self._unchecked_topics = list(self._topics)
            self._kept_bytes = 0  # counts the topics that have been checked
            self._queue_task(self)

    def _make_topic(self, message_type: str, name: str) -> AnyTopic:
        queue = None if self.queues is None else self.queues.find(message_type, name)
        if queue is not None:
            return queue
        return self._make_non_queue_topic(
            message_type, name, self._sow_registry.find(message_type, name)
        )

    def topic_behind_queue(self, message_type: str, queue: str, name: str) -> AnyTopic:
        """Return the topic that takes messages published to a queue; its name may be the queue's.

        In that case only this method finds it: lookups of that name in the registry find the
        queue, and the records under that name show the queue's messages.
        """
        if name != queue:
            return self.find(message_type, name)
        topic = self._behind_queues.get((message_type, name))
        if topic is None:
            topic = self._make_non_queue_topic(message_type, name, None)
            self._behind_queues[message_type, name] = topic
        return topic

    def may_be_dead_letter(self, message_type: str, queue: str, topic: str, letters: str) -> bool:
        """Return whether a message of a topic may have left a queue as a dead letter.

        Args:
            message_type: the message type of all three.
            queue: the name of the queue.
            topic: the topic that the message was published to.
            letters: the topic of the letter.

        Returns:
            False if there is no such queue, if the topic does not feed it, or if its letters are
            published to another topic.
        """
        found = None if self.queues is None else self.queues.find(message_type, queue)
        if found is None or found.spec.dead_letter_topic != letters:
            return False
        return found.source.matches(topic)

    def make_reader_topic(self, messages: RecordSource) -> RecordTopic:
        """Create the topic that notifies readers of a queue's records, and refuses publishes."""
        return DerivedTopic(messages, messages.name, self._functions, self._sow_registry)

    def _make_non_queue_topic(
        self, message_type: str, name: str, keeper: RecordSource | None
    ) -> AnyTopic:
        """Create a topic that is no queue.

        Args:
            message_type: the type that it is scoped to.
            name: its name.
            keeper: the owner of its records, None if it has none.
        """
        functions, log = self._functions, self.transaction_log
        if name == NULL_TOPIC:
            return NullTopic(self._message_types[message_type], name, functions)
        if keeper is not None and not isinstance(keeper, SowTopicRecords):
            return DerivedTopic(keeper, name, functions, self._sow_registry)
        if log is None or not log.is_recorded(
            message_type, name if keeper is None else keeper.name
        ):
            if keeper is not None:
                return SowTopic(keeper, name, functions, self._sow_registry)
            return Topic(self._message_types[message_type], name, functions)
        feeds = () if self.queues is None else self.queues.fed_by(message_type, name)
        journal = TopicJournal(log, message_type, name, feeds)
        if keeper is not None:
            return JournaledSowTopic(keeper, name, functions, self._sow_registry, journal)
        return JournaledTopic(self._message_types[message_type], name, functions, journal)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "", "idle topics"

    def step(self) -> bool:
        """Forget topics that can be recreated as they were: those without literal subscriptions.

        See `EngineTask.step`.
        """
        some = self._unchecked_topics[-_LOOKUP_BATCH_SIZE:]
        del self._unchecked_topics[-_LOOKUP_BATCH_SIZE:]
        for key in some:
            topic = self._topics[key]
            if topic.has_literal_subscription:
                self._kept_bytes += _size_of(topic)
            else:
                self._forget(self._topics.pop(key))
        self.generation += 1
        if not self._unchecked_topics:
            self._max_kept_bytes = max(self._max_kept_bytes, 2 * self._kept_bytes)
        return bool(self._unchecked_topics)

    def _forget(self, topic: AnyTopic) -> None:
        for subscription in topic.subscriptions:
            self._attached_topics[subscription].discard(topic)  # by regular expression, not by name


def _size_of(topic: AnyTopic) -> int:
    """Return the approximate number of bytes kept for a topic."""
    return (
        _TOPIC_BYTES
        + _CHARACTER_BYTES * len(topic.name)
        + _ATTACHMENT_BYTES * topic.subscription_count
    )


def _attach_or_end(topic: AnyTopic, subscription: Subscription) -> None:
    """Attach a subscription to a topic that has been recreated; end it if that fails."""
    if subscription.consumer is not None:  # it expects leases, which the topic does not give
        end_failed_subscriptions((subscription,), QueueRemovedError(topic.name))
        return
    try:
        _attach_if_entitled(topic, subscription)
    except Exception as error:  # of any kind: the other subscriptions go on
        end_failed_subscriptions((subscription,), error)


def _attach_if_entitled(topic: AnyTopic, subscription: Subscription) -> bool:
    """Attach a subscription to one of the topics that it selects; return whether it was attached.

    A bookmark subscription is for topics in the transaction log only (AMPS User Guide, Content and
    Topic Filtering).

    The permission to read is checked for each topic that a regular expression matches (AMPS User
    Guide, Entitlement, Regular Expression Subscriptions). A replacement may also name a single
    topic that the user may not read (Replacing the Topic on a Subscription). The entitlement filter
    on messages becomes part of the subscription there
    (server/topics/subscriptions/entitlement_limits.py).
    """
    if subscription.replay is not None and not topic.is_journaled:
        return False
    permit = subscription.subscriber.get_read_permit(topic.name)
    if not permit.is_allowed:
        return False
    topic.attach(subscription, permit)
    return True
