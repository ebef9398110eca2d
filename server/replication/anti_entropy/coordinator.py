"""Compares the records of this instance with those of the instances that replicate to it.

    a link is open -> after a minute, and then once an hour, or on request: one topic after the
    other, one comparison at a time -> the log, `history`, perhaps a repair

`server/replication/anti_entropy/comparison` decides; this module adds records, links and time. It
compares topics with records at both instances that the other instance sends here without a filter.
Where both send to each other, the one with the name that sorts first requests the comparison.

Source: ours; AMPS has nothing of the kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.replication.anti_entropy.comparison import ComparisonResult, RecordComparison, prevails
from server.replication.anti_entropy.messages import (
    ComparisonMessage,
    ComparisonMessageError,
    ComparisonReport,
    DigestRequest,
    KeyListContinuation,
    KeyListRequest,
    RepublishRequest,
    StateRequest,
    make_republish_requests,
    pack,
    unpack,
)
from server.replication.anti_entropy.republisher import RecordRepublisher
from server.replication.anti_entropy.responder import ComparisonResponder
from server.replication.anti_entropy.results import (
    MAX_SHOWN_KEYS,
    ComparisonHistory,
    TopicComparison,
)
from server.replication.anti_entropy.topic_records import TopicRecords, goes_from, is_kept_by
from server.storage.journal.publisher_table import publisher_part, server_made_identity
from server.storage.sow.store import RecordStoreError
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.replication.links.link_peer import LinkPeer
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationState
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.sow_registry import SowRegistry
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "compare"
"""Subject of the messages of this module."""

FIRST_COMPARISON_DELAY_S: Final = 60.0
"""Time from the opening of a link to the first comparison with its instance."""
COMPARISON_INTERVAL_S: Final = 3600.0
"""Interval of the further comparisons."""

_TICK_SECONDS: Final = 0.25


@dataclass(slots=True)
class _ComparisonJob:
    """A comparison to be made."""

    peer: str
    topic: SowTopicRecords
    should_repair: bool


@dataclass(slots=True)
class _ComparisonPeer:
    """An instance with which this instance has a link."""

    link_peer: LinkPeer
    responder: ComparisonResponder
    next_comparison_at: float
    requested_at: float = 0.0


class AntiEntropyCoordinator:
    """Runs the comparisons of an instance, and responds to those of others.

    Args:
        replication: the replication state.
        topics: the topics with records.
        republisher: republishes the records that a repair keeps.
        links: the links.
        scheduler: the scheduler of the engine's thread.
        clock: the time, and timers.
        log: the event log, for the results.

    Attributes:
        history: the latest results.
    """

    def __init__(
        self,
        replication: ReplicationState,
        topics: SowRegistry,
        republisher: RecordRepublisher,
        links: LinkRegistry,
        scheduler: Scheduler,
        clock: Clock,
        log: ServerLog,
    ) -> None:
        self.history: Final = ComparisonHistory(log)
        self._replication: Final = replication
        self._topics: Final = topics
        self._republisher: Final = republisher
        self._links: Final = links
        self._scheduler: Final = scheduler
        self._clock: Final = clock
        self._peers: dict[str, _ComparisonPeer] = {}
        self._pending_jobs: deque[_ComparisonJob] = deque()
        self._current: tuple[RecordComparison, _ComparisonJob] | None = None
        self._started_at = 0.0
        self._number = replication.nonce
        self._is_queued = False
        links.watch(self._update_peers)
        links.register_handler(SUBJECT, self._receive_message)
        self._cancel_timer = clock.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Stop comparing."""
        self._cancel_timer()
        self._peers.clear()
        self._pending_jobs.clear()
        self._current = None

    # requests

    def compare(
        self, peer: str | None = None, topic: str | None = None, *, repair: bool = False
    ) -> int:
        """Schedule comparisons.

        Args:
            peer: the instance; None for all with links to this one that send here.
            topic: the topic; None for all.
            repair: whether to republish, for each key that differs, the record of one of the two
                instances.

        Returns:
            The number of comparisons scheduled.
        """
        count = 0
        for comparison_peer in self._peers.values():
            if peer in (None, comparison_peer.link_peer.name):
                for sow in self._comparable_topics(comparison_peer.link_peer):
                    if topic in (None, sow.name):
                        self._enqueue_job(comparison_peer.link_peer.name, sow, repairs=repair)
                        count += 1
        self._wake()
        return count

    def _enqueue_job(self, peer: str, sow: SowTopicRecords, *, repairs: bool) -> None:
        for job in self._pending_jobs:
            if (job.peer, job.topic) == (peer, sow):
                job.should_repair |= repairs
                return
        self._pending_jobs.append(_ComparisonJob(peer, sow, repairs))

    def _comparable_topics(self, peer: LinkPeer) -> list[SowTopicRecords]:
        """Return the topics that an instance sends here, with records at both instances."""
        if not peer.sends:
            return []
        return [
            sow
            for sow in self._topics.topics
            if self._topics.is_journaled(sow)
            and is_kept_by(sow, peer.description)
            and self._make_inbound_check(peer, sow)(sow.name)
        ]

    def _make_inbound_check(self, peer: LinkPeer, sow: SowTopicRecords) -> Callable[[str], bool]:
        return goes_from(peer.description, self._replication.description, None, sow.type_name)

    def _make_outbound_check(self, peer: LinkPeer, sow: SowTopicRecords) -> Callable[[str], bool]:
        if peer.destination is None:
            return _sends_no_topic
        own = self._replication.description
        return goes_from(own, peer.description, peer.destination, sow.type_name)

    # peers

    def _update_peers(self) -> None:
        peers = self._links.peers
        for name in [name for name in self._peers if name not in peers]:
            self._remove_peer(name)
        for name, peer in peers.items():
            comparison_peer = self._peers.get(name)
            if comparison_peer is None:
                responder = ComparisonResponder(name, self._make_record_finder(name), self)
                next_comparison_at = self._scheduler.elapsed() + FIRST_COMPARISON_DELAY_S
                self._peers[name] = _ComparisonPeer(peer, responder, next_comparison_at)
            else:
                comparison_peer.link_peer = peer

    def _remove_peer(self, name: str) -> None:
        del self._peers[name]
        self._pending_jobs = deque(job for job in self._pending_jobs if job.peer != name)
        if self._current is not None and self._current[0].peer == name:
            self._current[0].fail(f"the link with {name} is gone")
            self._wake()

    def _make_record_finder(self, peer: str) -> Callable[[str, str], TopicRecords | None]:
        """Return a function that finds the records that are sent to another instance."""

        def find(message_type: str, name: str) -> TopicRecords | None:
            sow = self._find_topic(message_type, name)
            if sow is None or not self._topics.is_journaled(sow):
                return None
            is_sent = self._make_outbound_check(self._peers[peer].link_peer, sow)
            return TopicRecords(sow, is_sent) if is_sent(name) else None

        return find

    def _is_sent_to(self, peer: str, message_type: str, name: str) -> bool:
        """Return whether a topic's records are sent to an instance, so that it may compare them."""
        return self._make_record_finder(peer)(message_type, name) is not None

    def _find_topic(self, message_type: str, name: str) -> SowTopicRecords | None:
        for sow in self._topics.topics:
            if (sow.type_name, sow.name) == (message_type, name):
                return sow
        return None

    # `ComparisonContext`

    @property
    def last_txid(self) -> int:
        """See `ComparisonContext.last_txid`."""
        return self._replication.last_txid

    def has_received(self, peer: str, txid: int) -> bool:
        """See `ComparisonContext.has_received`."""
        comparison_peer = self._peers.get(peer)
        if comparison_peer is not None and not comparison_peer.link_peer.sends:
            return True
        receiver = self._replication.receivers.get(peer)
        return receiver is not None and receiver.received_txid >= txid

    def has_message(self, client: int, sequence: int) -> bool:
        """See `ComparisonContext.has_message`."""
        dedup_window = self._replication.dedup_window
        if dedup_window.highest_sequence(client):
            return not dedup_window.new_positions(client, (sequence,))
        # Messages published here without a sequence number are known by their txid.
        return self._replication.log_start_txid <= sequence <= self._replication.last_txid

    # messages

    def _send_messages(self, peer: str, messages: list[ComparisonMessage]) -> None:
        for message in messages:
            self._links.send_message(peer, SUBJECT, pack(message))
        messages.clear()

    def _receive_message(self, peer: str, body: bytes) -> None:
        comparison_peer = self._peers.get(peer)
        if comparison_peer is None:
            return
        try:
            message = unpack(body)
        except ComparisonMessageError:
            return  # malformed: the requester times out
        if isinstance(message, DigestRequest):
            comparison_peer.requested_at = self._clock.now()
        if isinstance(message, DigestRequest | KeyListRequest | KeyListContinuation | StateRequest):
            comparison_peer.responder.receive_request(message)
        elif isinstance(message, ComparisonReport):
            self._store_peer_report(comparison_peer, message)
        elif isinstance(message, RepublishRequest):
            sow = self._find_topic(message.message_type, message.topic)
            if sow is not None and self._is_sent_to(peer, message.message_type, message.topic):
                self._republisher.enqueue_records(
                    sow, zip(message.keys, message.digests, strict=True)
                )
        elif self._current is not None and self._current[0].peer == peer:
            self._current[0].receive_message(message)
        self._wake()

    def _store_peer_report(
        self, comparison_peer: _ComparisonPeer, message: ComparisonReport
    ) -> None:
        """Store the result that the other instance reports."""
        topic = message.message_type, message.topic
        if self._is_sent_to(comparison_peer.link_peer.name, *topic):
            keys = message.keys[:MAX_SHOWN_KEYS]
            counts = message.records[1], message.differing, message.unclear
            self.history.add(
                comparison_peer.link_peer.name,
                topic,
                TopicComparison(comparison_peer.requested_at, *counts, keys),
            )

    # scheduling

    def _tick(self) -> None:
        self._cancel_timer = self._clock.call_later(_TICK_SECONDS, self._tick)
        now = self._scheduler.elapsed()
        for comparison_peer in self._peers.values():
            if now >= comparison_peer.next_comparison_at:
                comparison_peer.next_comparison_at = now + COMPARISON_INTERVAL_S
                for sow in self._comparable_topics(comparison_peer.link_peer):
                    if not self._is_requested_by_peer(comparison_peer.link_peer, sow):
                        self._enqueue_job(comparison_peer.link_peer.name, sow, repairs=False)
        if self._current or self._pending_jobs or self._has_pending_response:
            self._wake()

    def _is_requested_by_peer(self, peer: LinkPeer, sow: SowTopicRecords) -> bool:
        """Return whether the other instance requests the comparison: it also receives the topic."""
        return peer.name < self._replication.instance and self._make_outbound_check(peer, sow)(
            sow.name
        )

    @property
    def _has_pending_response(self) -> bool:
        """True if a response is pending."""
        return any(
            comparison_peer.responder.is_awaiting_entries
            for comparison_peer in self._peers.values()
        )

    def _wake(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._scheduler.queue_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "", "comparison"

    def step(self) -> bool:
        """Run a time slice of work; see `EngineTask.step`."""
        self._is_queued = False
        while self._run_jobs():
            if self._scheduler.time_left(self._scheduler.elapsed()) <= 0:
                self._is_queued = True
                return True
        return False

    def _run_jobs(self) -> bool:
        """Do a part of each task, and return whether there is more to do at once."""
        has_more = self._run_comparison()
        for comparison_peer in list(self._peers.values()):
            try:
                has_more |= comparison_peer.responder.run_slice()
            except RecordStoreError:
                comparison_peer.responder.cancel_requests()  # the other instance times out
            self._send_messages(
                comparison_peer.link_peer.name, comparison_peer.responder.outgoing_messages
            )
        return self._republisher.republish_batch() or has_more

    def _run_comparison(self) -> bool:
        if self._current is None:
            if not self._pending_jobs:
                return False
            self._current = self._start_comparison(self._pending_jobs.popleft())
        current, job = self._current
        try:
            has_more = current.run_slice(self._now_us)
        except RecordStoreError as problem:
            current.fail(str(problem))
            has_more = False
        self._send_messages(current.peer, current.outgoing_messages)
        if not current.is_over:
            return has_more
        self._current = None
        self._finish_comparison(current, job)
        return bool(self._pending_jobs)

    @property
    def _now_us(self) -> int:
        return int(self._scheduler.elapsed() * MICROSECONDS_PER_SECOND)

    def _start_comparison(self, job: _ComparisonJob) -> tuple[RecordComparison, _ComparisonJob]:
        link_peer, sow = self._peers[job.peer].link_peer, job.topic
        self._number += 1
        self._started_at = self._clock.now()
        records = TopicRecords(sow, self._make_inbound_check(link_peer, sow))
        topic = sow.type_name, sow.name
        return RecordComparison(
            self._number, topic, link_peer.name, records, self, self._now_us
        ), job

    def _finish_comparison(self, current: RecordComparison, job: _ComparisonJob) -> None:
        result = current.result
        if result is None:
            comparison = TopicComparison(self._started_at, failure=current.failure or "")
            self.history.add(current.peer, current.topic, comparison)
            return
        keys = [difference.key for difference in result.differences[:MAX_SHOWN_KEYS]]
        counts = result.differing, result.unclear
        comparison = TopicComparison(self._started_at, result.records[0], *counts, keys)
        self.history.add(current.peer, current.topic, comparison)
        report = ComparisonReport(self._number, *current.topic, result.records, *counts, keys)
        self._send_messages(current.peer, [report])
        if job.should_repair and job.peer in self._peers:
            self._repair(job, result)

    def _repair(self, job: _ComparisonJob, result: ComparisonResult) -> None:
        """Republish for each key that differs the record of one of the instances.

        If nothing is sent to the other instance, only its own records can be republished.
        """
        link_peer, sow = self._peers[job.peer].link_peer, job.topic
        names = self._replication.instance, link_peer.name
        repairs = frozenset(
            publisher_part(server_made_identity(self._republisher.client_hash, name))
            for name in names
        )
        is_sent = self._make_outbound_check(link_peer, sow)(sow.name)
        own_records: list[tuple[str, int]] = []
        peer_records: list[tuple[str, int]] = []
        for key, own, peer in result.differences:
            if is_sent and prevails(own, peer, repairs):
                own_records.append((key, own.digest))
            elif peer.digest:
                peer_records.append((key, peer.digest))
        self._republisher.enqueue_records(sow, own_records)
        self._send_messages(
            link_peer.name, list(make_republish_requests(sow.type_name, sow.name, peer_records))
        )


def _sends_no_topic(_name: str) -> bool:
    return False
