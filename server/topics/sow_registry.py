"""The configured topics that have records.

They are in the order of the configuration: where a name fits several, the first one has it
(AMPS User Guide, Configuration File Precedence). All changes of an instance have one order; this
module assigns the sequence numbers.

Two things happen without a command. Records expire (server/topics/expiration.py). And written data
is put on stable storage within a second of the write, even if no publisher waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.security.permissions import UNLIMITED
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, to_nanoseconds
from server.storage.sow.store import RecordStoreError, StoreCallback
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.derivation_order import DerivedTopicScheduler
from server.topics.expiration import Expiration
from server.topics.subscriptions.delivery.delta import DeltaEncoder
from server.topics.subscriptions.delivery.envelope import Envelope

if TYPE_CHECKING:
    from config_schema.spec import TopicRef
    from server.expressions.topic_names import TopicSelector
    from server.security.permissions import Permit
    from server.storage.sow.records import RecordChange
    from server.topics.conflated_topic import ConflatedTopic
    from server.topics.record_source import RecordFollower, RecordSource
    from server.topics.transaction_log import TransactionLog
    from server.topics.view_topic import View
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

_COMMIT_SECONDS: Final = 1.0

AnnounceChanges = Callable[["str", "list[RecordChange]", Envelope, str], None]
"""Notifies subscribers of a message type of changes, and of the reason why records are gone."""


DurabilityWait: TypeAlias = "Callable[[StoreCallback], None]"
"""Calls back when the effects of a command are on stable storage, or may not get there."""

CommitRequest: TypeAlias = "Callable[[StoreCallback | None], None]"
"""Requests that everything written so far be put on stable storage. It returns without waiting, and
calls back, on the engine's thread, after the attempt."""


class TopicSelection(NamedTuple):
    """A topic that a selector chooses.

    Attributes:
        source: the topic.
        name_filter: returns whether one of its logical topics is selected, None for all.
        permit: the permission on its records, with the filter on those that a user may see.
    """

    source: RecordSource
    name_filter: Callable[[str], bool] | None
    permit: Permit = UNLIMITED


class SowRegistry:
    """The topics with records of one instance.

    Args:
        clock: the clock.
        log: receives failures.
        announce: notifies subscribers of expirations.
        start: starts work that is done in time slices; see `Scheduler.start_task`.
        flush: called after changes have been announced.

    Attributes:
        transaction_log: see `TopicTable`.
        derived_scheduler: schedules the topics that are derived from others.
        version: increases when a reload has changed the topics, or which of them are recorded.
    """

    def __init__(
        self,
        clock: Clock,
        log: ServerLog,
        announce: AnnounceChanges,
        start: Callable[[EngineTask], None],
        flush: Callable[[], None],
    ) -> None:
        self._clock = clock
        self.announce: Final = announce
        self._expiration = Expiration(self, clock, log, start, flush)
        clock.on_wall_clock_step(self._shift_times)
        self.transaction_log: TransactionLog | None = None
        self.version = 0
        self.derived_scheduler: Final = DerivedTopicScheduler(log)
        self._sources: list[RecordSource] = []
        self._has_containers = False
        self._topics: list[SowTopicRecords] = []
        self._derived: list[ConflatedTopic | View] = []
        self._commit_requests: dict[SowTopicRecords, CommitRequest] = {}
        self._delta_encoders: dict[RecordSource, DeltaEncoder] = {}
        self._followers: dict[RecordSource, list[RecordFollower]] = {}
        self._last_sequence = 0
        self._uncommitted_topics: set[SowTopicRecords] = set()

    # ---- the topics

    @property
    def sources(self) -> Iterable[RecordSource]:
        """All topics, in the order of the configuration."""
        return self._sources

    @property
    def topics(self) -> Iterable[SowTopicRecords]:
        """The topics that clients publish to."""
        return self._topics

    def add(self, sow: SowTopicRecords, commit: CommitRequest) -> None:
        """Add a topic that has been recovered; records that have expired meanwhile go at once.

        Args:
            sow: the topic.
            commit: requests that its files be put on stable storage.
        """
        self._add_source(sow)
        self._topics.append(sow)
        self._commit_requests[sow] = commit
        if not self.is_journaled(sow):
            self._last_sequence = max(self._last_sequence, sow.table.store.last_sequence)
        sow.correct_stored_times(to_nanoseconds(self._clock.now()), self._clock_steps_of(sow))
        self._expiration.schedule_check(sow)

    def _clock_steps_of(self, sow: SowTopicRecords) -> Sequence[tuple[int, int]]:
        """Return the steps of the wall clock, placed in the order of a topic's changes."""
        log = self.transaction_log
        if log is None or not self.is_journaled(sow):
            return ()
        return [
            (txid, step * NANOSECONDS_IN_MICROSECOND)
            for txid, step in log.journal.clock_steps.all_steps
        ]

    def _shift_times(self, seconds: float) -> None:
        for sow in self._topics:
            sow.shift_times(to_nanoseconds(seconds))
        self._expiration.shift_next_check(seconds)

    def add_derived(self, topic: ConflatedTopic | View) -> None:
        """Add a topic that is derived from the records of others, which must be added before."""
        self.connect(topic)
        self.add_connected(topic)

    def connect(self, topic: ConflatedTopic | View) -> None:
        """Make a derived topic follow the changes of its sources."""
        for source, follower in topic.inputs:
            self.followers(source).append(follower)

    def disconnect(self, topic: ConflatedTopic | View) -> None:
        """Make a derived topic follow the changes of its sources no more."""
        for source, follower in topic.inputs:
            followers = self._followers.get(source, [])
            if follower in followers:
                followers.remove(follower)

    def add_connected(self, topic: ConflatedTopic | View) -> None:
        """Add a derived topic that follows its sources already, and has its records."""
        self._add_source(topic)
        self._derived.append(topic)

    def add_queue(self, messages: RecordSource) -> None:
        """Add the messages of a queue, which can only be queried."""
        self._add_source(messages)

    def populate_derived(self) -> None:
        """Make derived topics create their records. Called once all others have been recovered."""
        for topic in self._derived:
            topic.populate()

    def remove(self, source: RecordSource) -> None:
        """Remove a topic that no other one is derived from; if it has a file, that stays open."""
        self._sources.remove(source)
        if isinstance(source, SowTopicRecords):
            self._topics.remove(source)
            self._expiration.forget(source)
            if source.spec.file_name is None:
                self._commit_requests.pop(source)
        for topic in self._derived:
            if topic is source:
                self.disconnect(topic)
        self._derived = [topic for topic in self._derived if topic is not source]
        self._followers.pop(source, None)
        self._delta_encoders.pop(source, None)

    def arrange(self, refs: Sequence[TopicRef]) -> None:
        """Put the topics in the order of a configuration, after some have come or gone.

        Args:
            refs: the topics of the configuration.
        """
        positions = {(ref.message_type, ref.name): index for index, ref in enumerate(refs)}
        self._sources.sort(key=lambda source: positions[source.type_name, source.name])
        self.version += 1

    def _add_source(self, source: RecordSource) -> None:
        self._sources.append(source)
        self._has_containers |= source.is_container

    def followers(self, source: RecordSource) -> list[RecordFollower]:
        """Return the topics derived from a topic's records; the list grows as more are added."""
        return self._followers.setdefault(source, [])

    def find(self, message_type: str, name: str) -> RecordSource | None:
        """Return the topic that has the records of a name; None if none are kept.

        The first of the configuration counts. But the copy of a container has the names that it
        creates, also where the container's pattern covers them: otherwise it could not be reached,
        and its changes would be attributed to the topic that it copies.
        """
        for source in self._sources:
            if source.type_name == message_type and source.covers_topic(name):
                return self._find_copy(source, name) if source.is_container else source
        return None

    def _find_copy(self, container: RecordSource, name: str) -> RecordSource:
        """Return the topic that has the records of a name: a container, or one derived from it."""
        owner = container
        for topic in self._derived:
            if topic.covers_topic(name) and any(source is owner for source, _ in topic.inputs):
                owner = topic
        return owner

    def entitlement_resource(self, message_type: str, name: str) -> str:
        """Return the resource that an entitlement module checks for the use of a topic.

        All logical topics of a container have the permissions of the container's name (AMPS User
        Guide, Entitlements for Logical Topics).
        """
        if not self._has_containers:
            return name
        source = self.find(message_type, name)
        return name if source is None else source.name

    def find_configured(self, ref: TopicRef) -> RecordSource | None:
        """Return the topic that a reference of the configuration names, None if there is none."""
        for source in self._sources:
            if (source.name, source.type_name) == (ref.name, ref.message_type):
                return source
        return None

    def select(self, message_type: str, selector: TopicSelector) -> list[TopicSelection]:
        """Return the topics with records that a query or deletion selects, in their order."""
        if not selector.is_regex:
            source = self.find(message_type, selector.text)
            sources = [] if source is None else [source]
        else:
            sources = [
                source
                for source in self._sources
                if source.type_name == message_type
                and (source.is_container or selector.matches(source.name))
            ]
        return [
            TopicSelection(source, selector.matches if source.is_container else None)
            for source in sources
        ]

    def delta_encoder(self, source: RecordSource) -> DeltaEncoder:
        """Return the object that computes deltas of a topic's records."""
        encoder = self._delta_encoders.get(source)
        if encoder is None:
            encoder = DeltaEncoder(source.table.message_type, source.key_fields)
            self._delta_encoders[source] = encoder
        return encoder

    # ---- changes

    def is_journaled(self, sow: SowTopicRecords) -> bool:
        """Return whether messages published to a topic are in the transaction log."""
        log = self.transaction_log
        return log is not None and log.is_recorded(sow.type_name, sow.name)

    def next_sequence(self) -> int:
        """Return the number of the next change of a topic that is not in the transaction log."""
        return self.next_sequences(1)[0]

    def next_sequences(self, count: int) -> range:
        """Return the numbers of the next changes of such a topic."""
        first = self._last_sequence + 1
        self._last_sequence += count
        return range(first, first + count)

    def expiry_sequence(self, sow: SowTopicRecords) -> int:
        """Return the number of an expiration, which is not in the log: it follows from entries."""
        if self.transaction_log is not None and self.is_journaled(sow):
            return self.transaction_log.last_txid
        return self.next_sequence()

    def mark_changed(self, sow: SowTopicRecords) -> None:
        """Note that a topic has changed."""
        self.schedule_commit(sow)
        if sow.changes_with_time:
            self._expiration.schedule_check(sow)

    def schedule_commit(self, sow: SowTopicRecords) -> None:
        """Schedule a topic to be put on stable storage soon."""
        if not self._uncommitted_topics:
            self._clock.call_later(_COMMIT_SECONDS, self._commit)
        self._uncommitted_topics.add(sow)

    def _commit(self) -> None:
        uncommitted_topics, self._uncommitted_topics = self._uncommitted_topics, set()
        for sow in uncommitted_topics:
            self._commit_topic(sow, _ignore_failure)

    def _commit_topic(self, sow: SowTopicRecords, callback: StoreCallback) -> None:
        """Put a topic on stable storage; retry soon if that fails."""

        def on_attempt(problem: RecordStoreError | None) -> None:
            if problem is not None:
                self.schedule_commit(sow)
            callback(problem)

        request = self._commit_requests.get(sow)
        if request is None:  # the topic was in memory, and has been removed
            callback(None)
        else:
            request(on_attempt)

    def when_settled(self, topics: Iterable[SowTopicRecords], callback: StoreCallback) -> None:
        """Call back after putting data written to some topics on stable storage, or failing to.

        Args:
            topics: the topics.
            callback: the callback; called at once if there is nothing to wait for.
        """
        when_all_settled(
            [partial(self._commit_topic, sow) for sow in dict.fromkeys(topics)],
            callback,
        )


def when_all_settled(waits: Sequence[DurabilityWait], callback: StoreCallback) -> None:
    """Call back when several commits are settled: with the first problem, if there was any.

    Args:
        waits: each calls back when one of them is settled.
        callback: the callback; called at once if there is nothing to wait for.
    """
    pending_count, problem = len(waits), None

    def on_settled(outcome: RecordStoreError | None) -> None:
        nonlocal pending_count, problem
        pending_count, problem = pending_count - 1, problem or outcome
        if not pending_count:
            callback(problem)

    if not waits:
        callback(None)
    for wait in waits:
        wait(on_settled)


@dataclass(slots=True, unsafe_hash=True)  # frozen ones take longer to make
class AllSettled:
    """Calls back when everything published so far to some topics is settled.

    Attributes:
        waits: each calls back when that of one of them is settled.
    """

    waits: frozenset[DurabilityWait]

    def __call__(self, then: StoreCallback, /) -> None:
        """Call back when everything is on stable storage, or not all can be put there."""
        when_all_settled([*self.waits], then)


def _ignore_failure(_problem: RecordStoreError | None) -> None:
    """Do nothing: the failure has been reported, and is retried."""
