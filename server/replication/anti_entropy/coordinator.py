"""Compares the records of this instance with those of the instances that replicate to it.

    a link is open -> after a minute, and then once an hour, or on request: one topic after the
    other, one comparison at a time -> the log, `findings`, perhaps a repair

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

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.replication.links.context import PeerLinks
    from server.replication.links.registry import LinkPeer
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
_MICROSECONDS: Final = 1_000_000


@dataclass(slots=True)
class _ComparisonJob:
    """A comparison to be made."""

    peer: str
    topic: SowTopicRecords
    repairs: bool


@dataclass(slots=True)
class _ComparisonPeer:
    """An instance that this instance has a link with."""

    peer: LinkPeer
    answering: ComparisonResponder
    next_at: float
    asked_at: float = 0.0


class AntiEntropyCoordinator:
    """Runs and answers the comparisons of an instance.

    Args:
        replication: the replication state.
        topics: the topics with records.
        repairs: republishes the records that a repair keeps.
        neighbours: the links.
        turns: the scheduler of the engine's thread.
        clock: the time, and timers.
        log: the event log, for the results.

    Attributes:
        findings: the latest results.
    """

    def __init__(
        self,
        replication: ReplicationState,
        topics: SowRegistry,
        repairs: RecordRepublisher,
        neighbours: PeerLinks,
        turns: Scheduler,
        clock: Clock,
        log: ServerLog,
    ) -> None:
        self.findings: Final = ComparisonHistory(log)
        self._replication: Final = replication
        self._topics: Final = topics
        self._repairs: Final = repairs
        self._neighbours: Final = neighbours
        self._turns: Final = turns
        self._clock: Final = clock
        self._known: dict[str, _ComparisonPeer] = {}
        self._wanted: deque[_ComparisonJob] = deque()
        self._current: tuple[RecordComparison, _ComparisonJob] | None = None
        self._began = 0.0
        self._number = replication.nonce
        self._is_queued = False
        neighbours.watch(self._links_changed)
        neighbours.listen(SUBJECT, self._hear)
        self._cancel = clock.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Stop comparing."""
        self._cancel()
        self._known.clear()
        self._wanted.clear()
        self._current = None

    # Requests.

    def compare(
        self, peer: str | None = None, topic: str | None = None, *, repair: bool = False
    ) -> int:
        """Schedule comparisons.

        Args:
            peer: the instance; None for all that there are links with, and that send here.
            topic: the topic; None for all.
            repair: whether to republish, for each key that differs, the record of one of the two
                instances.

        Returns:
            The number of comparisons scheduled.
        """
        count = 0
        for known in self._known.values():
            if peer in (None, known.peer.name):
                for sow in self._comparable(known.peer):
                    if topic in (None, sow.name):
                        self._want(known.peer.name, sow, repairs=repair)
                        count += 1
        self._wake()
        return count

    def _want(self, peer: str, sow: SowTopicRecords, *, repairs: bool) -> None:
        for one in self._wanted:
            if (one.peer, one.topic) == (peer, sow):
                one.repairs |= repairs
                return
        self._wanted.append(_ComparisonJob(peer, sow, repairs))

    def _comparable(self, peer: LinkPeer) -> list[SowTopicRecords]:
        """Return the topics that an instance sends here, with records at both instances."""
        if not peer.sends:
            return []
        return [
            sow
            for sow in self._topics.topics
            if self._topics.is_journaled(sow)
            and is_kept_by(sow, peer.description)
            and self._goes_here(peer, sow)(sow.name)
        ]

    def _goes_here(self, peer: LinkPeer, sow: SowTopicRecords) -> Callable[[str], bool]:
        return goes_from(peer.description, self._replication.description, None, sow.type_name)

    def _goes_there(self, peer: LinkPeer, sow: SowTopicRecords) -> Callable[[str], bool]:
        if peer.destination is None:
            return _nothing_goes
        own = self._replication.description
        return goes_from(own, peer.description, peer.destination, sow.type_name)

    # Peers.

    def _links_changed(self) -> None:
        peers = self._neighbours.peers
        for name in [name for name in self._known if name not in peers]:
            self._forget(name)
        for name, peer in peers.items():
            known = self._known.get(name)
            if known is None:
                answering = ComparisonResponder(name, self._finder(name), self)
                due = self._turns.elapsed() + FIRST_COMPARISON_DELAY_S
                self._known[name] = _ComparisonPeer(peer, answering, due)
            else:
                known.peer = peer

    def _forget(self, name: str) -> None:
        del self._known[name]
        self._wanted = deque(one for one in self._wanted if one.peer != name)
        if self._current is not None and self._current[0].peer == name:
            self._current[0].fail(f"the link with {name} is gone")
            self._wake()

    def _finder(self, peer: str) -> Callable[[str, str], TopicRecords | None]:
        """Return a function that finds records for another instance: those that are sent there."""

        def find(message_type: str, name: str) -> TopicRecords | None:
            sow = self._find(message_type, name)
            if sow is None or not self._topics.is_journaled(sow):
                return None
            goes = self._goes_there(self._known[peer].peer, sow)
            return TopicRecords(sow, goes) if goes(name) else None

        return find

    def _is_sent_to(self, peer: str, message_type: str, name: str) -> bool:
        """Return whether a topic's records are sent to an instance, so that it asks about them."""
        return self._finder(peer)(message_type, name) is not None

    def _find(self, message_type: str, name: str) -> SowTopicRecords | None:
        for sow in self._topics.topics:
            if (sow.type_name, sow.name) == (message_type, name):
                return sow
        return None

    # The instance as a comparison sees it; see `ComparisonContext`.

    @property
    def last_txid(self) -> int:
        """See `ComparisonContext.last_txid`."""
        return self._replication.last_txid

    def has_taken(self, peer: str, txid: int) -> bool:
        """See `ComparisonContext.has_taken`."""
        known = self._known.get(peer)
        if known is not None and not known.peer.sends:
            return True
        receiver = self._replication.receivers.get(peer)
        return receiver is not None and receiver.received >= txid

    def had(self, client: int, sequence: int) -> bool:
        """See `ComparisonContext.had`."""
        known = self._replication.known
        if known.highest(client):
            return not known.unknown(client, (sequence,))
        # Messages published here without a sequence number are known by their txid.
        return self._replication.began <= sequence <= self._replication.last_txid

    # Messages.

    def _say(self, peer: str, words: list[ComparisonMessage]) -> None:
        for word in words:
            self._neighbours.say(peer, SUBJECT, pack(word))
        words.clear()

    def _hear(self, peer: str, body: bytes) -> None:
        known = self._known.get(peer)
        if known is None:
            return
        try:
            word = unpack(body)
        except ComparisonMessageError:
            return  # malformed: the requester times out
        if isinstance(word, DigestRequest):
            known.asked_at = self._clock.now()
        if isinstance(word, DigestRequest | KeyListRequest | KeyListContinuation | StateRequest):
            known.answering.take(word)
        elif isinstance(word, ComparisonReport):
            self._hear_outcome(known, word)
        elif isinstance(word, RepublishRequest):
            sow = self._find(word.message_type, word.topic)
            if sow is not None and self._is_sent_to(peer, word.message_type, word.topic):
                self._repairs.want(sow, zip(word.keys, word.digests, strict=True))
        elif self._current is not None and self._current[0].peer == peer:
            self._current[0].take(word)
        self._wake()

    def _hear_outcome(self, known: _ComparisonPeer, word: ComparisonReport) -> None:
        """Store the result that the other instance reports."""
        topic = word.message_type, word.topic
        if self._is_sent_to(known.peer.name, *topic):
            keys = word.keys[:MAX_SHOWN_KEYS]
            counts = word.records[1], word.differing, word.unclear
            self.findings.add(
                known.peer.name, topic, TopicComparison(known.asked_at, *counts, keys)
            )

    # Scheduling.

    def _tick(self) -> None:
        self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)
        now = self._turns.elapsed()
        for known in self._known.values():
            if now >= known.next_at:
                known.next_at = now + COMPARISON_INTERVAL_S
                for sow in self._comparable(known.peer):
                    if not self._is_their_turn(known.peer, sow):
                        self._want(known.peer.name, sow, repairs=False)
        if self._current or self._wanted or self._is_waited_for:
            self._wake()

    def _is_their_turn(self, peer: LinkPeer, sow: SowTopicRecords) -> bool:
        """Return whether the other instance requests the comparison: it also receives the topic."""
        return peer.name < self._replication.instance and self._goes_there(peer, sow)(sow.name)

    @property
    def _is_waited_for(self) -> bool:
        """True if an answer is pending."""
        return any(known.answering.is_waiting for known in self._known.values())

    def _wake(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._turns.queue(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `EngineTask.doing`."""
        return "", "comparison"

    def step(self) -> bool:
        """Run a time slice of work; see `EngineTask.step`."""
        self._is_queued = False
        while self._work():
            if self._turns.left(self._turns.elapsed()) <= 0:
                self._is_queued = True
                return True
        return False

    def _work(self) -> bool:
        """Do a part of each task, and return whether there is more to do at once."""
        has_more = self._ask()
        for known in list(self._known.values()):
            try:
                has_more |= known.answering.step()
            except RecordStoreError:
                known.answering.stop()  # the other instance times out
            self._say(known.peer.name, known.answering.outgoing)
        return self._repairs.step() or has_more

    def _ask(self) -> bool:
        if self._current is None:
            if not self._wanted:
                return False
            self._current = self._begin(self._wanted.popleft())
        current, wanted = self._current
        try:
            has_more = current.step(self._now)
        except RecordStoreError as problem:
            current.fail(str(problem))
            has_more = False
        self._say(current.peer, current.outgoing)
        if not current.is_over:
            return has_more
        self._current = None
        self._finish(current, wanted)
        return bool(self._wanted)

    @property
    def _now(self) -> int:
        return int(self._turns.elapsed() * _MICROSECONDS)

    def _begin(self, wanted: _ComparisonJob) -> tuple[RecordComparison, _ComparisonJob]:
        peer, sow = self._known[wanted.peer].peer, wanted.topic
        self._number += 1
        self._began = self._clock.now()
        records = TopicRecords(sow, self._goes_here(peer, sow))
        topic = sow.type_name, sow.name
        return RecordComparison(self._number, topic, peer.name, records, self, self._now), wanted

    def _finish(self, current: RecordComparison, wanted: _ComparisonJob) -> None:
        result = current.result
        if result is None:
            finding = TopicComparison(self._began, failure=current.failure or "")
            self.findings.add(current.peer, current.topic, finding)
            return
        keys = [one.key for one in result.differences[:MAX_SHOWN_KEYS]]
        counts = result.differing, result.unclear
        finding = TopicComparison(self._began, result.records[0], *counts, keys)
        self.findings.add(current.peer, current.topic, finding)
        outcome = ComparisonReport(self._number, *current.topic, result.records, *counts, keys)
        self._say(current.peer, [outcome])
        if wanted.repairs and wanted.peer in self._known:
            self._repair(wanted, result)

    def _repair(self, wanted: _ComparisonJob, result: ComparisonResult) -> None:
        """Republish for each key that differs the record of one of the instances.

        If nothing is sent to the other instance, only its own records can be republished.
        """
        peer, sow = self._known[wanted.peer].peer, wanted.topic
        names = self._replication.instance, peer.name
        repairs = frozenset(
            publisher_part(server_made_identity(self._repairs.client_hash, one)) for one in names
        )
        is_heard = self._goes_there(peer, sow)(sow.name)
        ours: list[tuple[str, int]] = []
        theirs: list[tuple[str, int]] = []
        for key, here, there in result.differences:
            if is_heard and prevails(here, there, repairs):
                ours.append((key, here.digest))
            elif there.digest:
                theirs.append((key, there.digest))
        self._repairs.want(sow, ours)
        self._say(peer.name, list(make_republish_requests(sow.type_name, sow.name, theirs)))


def _nothing_goes(_name: str) -> bool:
    return False
