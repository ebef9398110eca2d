"""The replication state of an instance.

It is created once, at the start, from the state stored by earlier runs (state_store.py), and lasts
as long as the instance. Links come and go: they use the `ReplicationSender` of a destination and
the `ReplicationReceiver` of a source. There is one of each, regardless of which link is open.

    a commit            -> process_commit: more may be settled; the links send and acknowledge
    an Ack, a downgrade -> update_settled: if more is settled, publishers are notified, and the
                           links acknowledge to the instances that have sent the entries

Everything happens on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.topology import InstanceDescription
from server.replication.core import (
    AcknowledgementTracker,
    DedupWindow,
    DestinationLag,
    EntryRecorder,
    LogBranch,
    ReceiveCursor,
    RecentEntries,
    ReplicationReceiver,
    ReplicationSender,
)
from server.replication.core.receive_cursor import log_of
from server.replication.links.admin_addresses import NO_ADMIN_LOCATION, AdminLocation
from server.replication.links.handshake import PeerIntroduction
from server.replication.links.link_events import LinkDirection, LinkEvent, LinkEvents
from server.replication.links.peer_identity import PeerIdentities
from server.storage.journal.runs import log_run_hash, run_at
from server.util.clock import MICROSECONDS_PER_SECOND, ElapsedMicroseconds, WallMicroseconds
from server.util.counters import TrafficCounter

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.replication.apply.permissions import ApplyPermissions
    from server.storage.journal import JournalTopic
    from server.topics.durable_watermark import DurableWatermarks
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_MAX_CACHED_TOPICS: Final = 10_000
_MAX_ERROR_LENGTH: Final = 250


@dataclass(slots=True)
class ReplicationDestination:
    """A Destination of this instance.

    Attributes:
        spec: its description.
        sender: sends to it; `sender.peer` is the instance that is connected, or was last.
        direction: the link to the destination, or the last one; set by links when one is made.
        is_connected: whether there is a link; set by links.
        connected_at: time when the last link began, in microseconds since 1970; None if there was
            none.
        disconnected_at: time when a link ended last; None if none has.
        disconnects: number of links that have ended.
        bytes_out: bytes of batches that were sent.
        user: the user of this instance's logon there; empty without a logon or a connection yet.
        admin_location: address of the admin interface of the instance that is connected, or was
            last.
        link_problem: the reason why there is no link, as text, as far as it is known.
        release_files: releases the files of the log that are held for it.
    """

    spec: DestinationSpec
    sender: ReplicationSender
    direction: LinkDirection
    is_connected: bool = False
    connected_at: WallMicroseconds | None = None
    disconnected_at: WallMicroseconds | None = None
    disconnects: int = 0
    bytes_out: int = 0
    user: str = ""
    admin_location: AdminLocation = NO_ADMIN_LOCATION
    link_problem: str = ""
    release_files: Callable[[], None] = lambda: None

    def set_link_problem(self, reason: object) -> None:
        """Store the reason why there is no link."""
        self.link_problem = str(reason)[:_MAX_ERROR_LENGTH]


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """The replication state when the instance started; see `recover_replication_state`.

    Attributes:
        log_id: identity of the transaction log.
        log_start_txid: the first txid that it ever had.
        dedup_window: the dedup windows of the publishers.
        recent_entries: the latest recorded entries.
        watermarks: the sequence numbers of publishers that may not be settled.
        cursors: by name of the source, the position up to which its log has been received.
        acknowledged_txids: by name of the destination, the txid up to which it had all entries.
        peer_log_ids: by name of another instance, the identity of the log that it had.
    """

    log_id: str
    log_start_txid: int
    dedup_window: DedupWindow
    recent_entries: RecentEntries
    watermarks: DurableWatermarks
    cursors: Mapping[str, ReceiveCursor]
    acknowledged_txids: Mapping[str, int]
    peer_log_ids: Mapping[str, str]


class ReplicationState:
    """The replication state of an instance.

    Args:
        description: the description of this instance for other instances.
        nonce: a number of this run.
        recovered: the state stored by earlier runs.
        destinations: the destinations, by name.
        min_sync_destinations: MinSyncDestinations.
        recorder: records entries from other instances.
        permissions: decides which of these may be recorded.
        transaction_log: the log of this instance.
        clock: the time.
        elapsed_s: seconds of a monotonic clock.
        log: the event log, for downgrades and upgrades.

    Attributes:
        instance: name of this instance.
        group: its group.
        log_id: identity of its transaction log.
        log_start_txid: the first txid that this log ever had.
        dedup_window: the dedup windows of the publishers.
        recent_entries: the latest recorded entries.
        ack_tracker: the settled position.
        events: events of links, emitted by the code that serves links.
        peer_identities: the identities of the instances that have connected.
        received_traffic: number and bytes of the entries received from other instances.
        removed_traffic: number and bytes of the entries sent to destinations that were removed.
    """

    def __init__(
        self,
        description: InstanceDescription,
        nonce: int,
        recovered: RecoveredState,
        destinations: Mapping[str, ReplicationDestination],
        min_sync_destinations: int,
        recorder: EntryRecorder,
        permissions: ApplyPermissions,
        transaction_log: TransactionLog,
        clock: Clock,
        elapsed_s: Callable[[], float],
        log: ServerLog,
    ) -> None:
        self.instance: Final = description.name
        self.group: Final = description.group
        self.log_id: Final = recovered.log_id
        self.log_start_txid: Final = recovered.log_start_txid
        self.nonce: Final = nonce
        self.description = description
        self.dedup_window: Final = recovered.dedup_window
        self.recent_entries: Final = recovered.recent_entries
        self.destinations: Final = dict(destinations)
        self.events: Final = LinkEvents()
        self.permissions: Final = permissions
        self.peer_identities: Final = PeerIdentities(
            description.name, recovered.log_id, recovered.peer_log_ids, log
        )
        self.received_traffic: Final = TrafficCounter()
        self.removed_traffic: Final = TrafficCounter()
        self._stored_cursors: Final = dict(recovered.cursors)
        self._receivers: dict[str, ReplicationReceiver] = {}
        self._recorder = recorder
        self._transaction_log = transaction_log
        self._start_txid: Final = transaction_log.last_txid
        self._clock = clock
        self._elapsed_s = elapsed_s
        self._log = log
        # valid until `awaited_destinations` changes
        self._awaited_topics: dict[JournalTopic, bool] = {}
        self._wake_links: Callable[[], None] = _no_wake
        # late destinations that were not downgraded at the last attempt
        self._retained_destinations: list[str] = []
        self.ack_tracker: Final = AcknowledgementTracker(
            *self._tracked_destinations(),
            transaction_log.durable_txid,
            self.elapsed_us,
            min_sync_destinations,
        )

    @property
    def now_us(self) -> WallMicroseconds:
        """The wall-clock time: for people and for messages, not for durations."""
        return WallMicroseconds(int(self._clock.now() * MICROSECONDS_PER_SECOND))

    @property
    def elapsed_us(self) -> ElapsedMicroseconds:
        """The time of the monotonic clock that measures how long entries have waited."""
        return ElapsedMicroseconds(int(self._elapsed_s() * MICROSECONDS_PER_SECOND))

    @property
    def durable_txid(self) -> int:
        """The txid up to which everything is on stable storage here."""
        return self._transaction_log.durable_txid

    @property
    def last_txid(self) -> int:
        """Txid of the last entry in the log of this instance."""
        return self._transaction_log.last_txid

    def bytes_behind(self, after: int) -> int:
        """Return about how many bytes of the log follow an entry."""
        return self._transaction_log.journal.estimate_bytes_after(after)

    # destinations

    def replace_destinations(self, destinations: Mapping[str, ReplicationDestination]) -> None:
        """Replace the destinations; removed ones have no links any more.

        Args:
            destinations: all destinations, by name: new and unchanged ones.
        """
        for name, destination in self.destinations.items():
            if destinations.get(name) is not destination:
                destination.release_files()
            if name not in destinations:
                self.removed_traffic.add(destination.sender.sent_entries, destination.bytes_out)
        self.destinations.clear()
        self.destinations.update(destinations)
        self.ack_tracker.replace_destinations(*self._tracked_destinations(), self.elapsed_us)
        self._awaited_topics.clear()
        self.update_settled()

    def _tracked_destinations(self) -> tuple[dict[str, ReplicationSender], frozenset[str]]:
        """Return the senders of all destinations by name, and the names of the sync ones."""
        senders = {name: destination.sender for name, destination in self.destinations.items()}
        sync_names = (
            name
            for name, destination in self.destinations.items()
            if destination.spec.sync_type == "sync"
        )
        return senders, frozenset(sync_names)

    # links

    def set_wake_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback that wakes the links: there may be something to send or acknowledge.

        Args:
            callback: called on the engine's thread after each commit of the log, and whenever more
                is settled; it must do no more than schedule a step.
        """
        self._wake_links = callback

    def receiver_for(self, name: str) -> ReplicationReceiver:
        """Return the receiver for a source; it is created for a new name."""
        receiver = self._receivers.get(name)
        if receiver is None:
            receiver = self._receivers[name] = ReplicationReceiver(
                self.instance,
                self.log_start_txid,
                self.dedup_window,
                self.recent_entries,
                self._recorder,
                self._stored_cursors.get(name),
                self._start_txid,
            )
        return receiver

    def cursors(self) -> dict[str, ReceiveCursor]:
        """Return the position received of each source's log, by name, also of absent sources."""
        received = {name: receiver.cursor for name, receiver in self._receivers.items()}
        current = {name: cursor for name, cursor in received.items() if cursor is not None}
        earlier = {
            name: cursor for name, cursor in self._stored_cursors.items() if name not in received
        }
        return earlier | current

    def make_introduction(self, description: InstanceDescription) -> PeerIntroduction:
        """Return the introduction of this instance to another one, when a link begins.

        Args:
            description: of this instance, reduced to the parts that the other one may see.
        """
        return PeerIntroduction(
            **{name: getattr(description, name) for name in InstanceDescription.__struct_fields__},
            runs=tuple(self._transaction_log.instance_runs()),
            read={
                name: (log_of(cursor.stream), cursor.txid, cursor.run)
                for name, cursor in self.cursors().items()
                if cursor.run is not None
            },
        )

    def log_branch_of(self, introduction: PeerIntroduction) -> LogBranch:
        """Return which entries are gone from the log of this instance, or of another one."""
        log, txid, run = introduction.read.get(self.instance, ("", 0, 0))
        own_runs = self._transaction_log.instance_runs()
        has_lost = log == self.log_id and (
            txid > self._transaction_log.last_txid or run_at(own_runs, txid) != run
        )
        return LogBranch(introduction.runs, has_lost, own_runs)

    @property
    def receivers(self) -> Mapping[str, ReplicationReceiver]:
        """All sources that have connected in this run, by name."""
        return self._receivers

    def retry_damaged(self, repaired_txid: int = 0) -> None:
        """Make all senders retry damaged entries.

        Args:
            repaired_txid: the txid of an entry that has been repaired; 0 if some have been given
                up.
        """
        for destination in self.destinations.values():
            destination.sender.retry_damaged(repaired_txid)
        self._wake_links()

    # equivalent positions at other instances

    def resume_positions(self, txid: int) -> list[tuple[int, int]]:
        """Return the positions in other logs up to which this log is complete.

        Args:
            txid: an entry of this log. The result holds for this log up to there.

        Returns:
            For each log a number that identifies it and a run of its instance (`log_run_hash`), and
            the txid of its last entry before the position; 0 if that is not known.
        """
        positions = {
            log_of(cursor.stream): (cursor.txid, cursor.run or 0)
            if txid >= self._start_txid
            else (0, 0)
            for name, cursor in self._stored_cursors.items()
            if name not in self._receivers
        }
        for receiver in self._receivers.values():
            position = receiver.source_position(txid)
            if position is not None:
                log, last = position
                positions[log] = last, receiver.run_at(last) or 0
        return [(log_run_hash(log, run), last) for log, (last, run) in positions.items()]

    # settled entries

    @property
    def settled_txid(self) -> int:
        """The txid up to which everything is settled."""
        return self.ack_tracker.settled_txid

    def awaits_topic(self, topic: JournalTopic) -> bool:
        """Return whether messages of a topic may be sent to a destination for which they wait."""
        is_awaited = self._awaited_topics.get(topic)
        if is_awaited is None:
            if len(self._awaited_topics) >= _MAX_CACHED_TOPICS:
                self._awaited_topics.clear()
            is_awaited = self._awaited_topics[topic] = any(
                self.destinations[name].sender.may_send_topic(topic)
                for name in self.ack_tracker.awaited_destinations
            )
        return is_awaited

    def process_commit(self) -> None:
        """Process a commit: more of the log is on stable storage.

        The transaction log calls this, and notifies its own waiters itself.
        """
        ack_tracker, log = self.ack_tracker, self._transaction_log
        ack_tracker.record_append(log.last_txid, self.elapsed_us)
        ack_tracker.advance_durable(log.durable_txid)
        ack_tracker.update_settled()
        self._wake_links()

    def update_settled(self) -> None:
        """Update the settled position after progress, a downgrade or an upgrade of a destination.

        To be called after `process_ack`, `resume`, `process_dedup_state` and `next_frame` of a
        `ReplicationSender`; outboxes are to be flushed after that.
        """
        if self.ack_tracker.update_settled():
            self._transaction_log.notify_settled()
            self._wake_links()

    # downgrades and upgrades

    def downgrade(self, name: str) -> bool:
        """Stop waiting for a destination; return whether that is new."""
        is_new = self.ack_tracker.downgrade(name)
        if is_new:
            self._report_downgrades([name])
        return is_new

    def upgrade(self, name: str) -> bool:
        """Wait for a destination again; return whether that is new."""
        is_new = self.ack_tracker.upgrade(name)
        if is_new:
            self._report_upgrades([name])
        return is_new

    def downgrade_late(self, age: int) -> list[str]:
        """Downgrade the destinations for which entries have waited too long.

        MinSyncDestinations may prevent some downgrades.

        Args:
            age: the limit, in microseconds.

        Returns:
            The names of the downgraded destinations.
        """
        names = self.ack_tracker.downgrade_late(age, self.elapsed_us)
        self._report_downgrades(names, age)
        retained = self.ack_tracker.late_destinations(age, self.elapsed_us)
        for name in retained:
            if name not in self._retained_destinations:
                least = self.ack_tracker.min_sync_destinations
                self._log.emit("1E-0024", destination=name, least=least)
        self._retained_destinations = retained
        return names

    def upgrade_recovered(self, age: int) -> list[str]:
        """Upgrade the destinations that have no entry unacknowledged for a period or longer.

        Args:
            age: the period, in microseconds.

        Returns:
            The names of the upgraded destinations.
        """
        names = self.ack_tracker.upgrade_recovered(age, self.elapsed_us)
        self._report_upgrades(names)
        return names

    def _report_downgrades(self, names: Sequence[str], age: int | None = None) -> None:
        self._awaited_topics.clear()
        for name in names:
            if age is None:
                self._log.emit("21-0020", destination=name)
            else:
                self._log.emit("29-0104", destination=name, seconds=age // MICROSECONDS_PER_SECOND)
            self.events.notify(LinkEvent.DOWNGRADE, self.destinations[name].direction)
        if names:
            self.update_settled()

    def _report_upgrades(self, names: Sequence[str]) -> None:
        self._awaited_topics.clear()
        for name in names:
            direction = self.destinations[name].direction
            self._log.emit("29-0105", client=direction.client)
            self.events.notify(LinkEvent.UPGRADE, direction)

    def destination_lags(self) -> Sequence[DestinationLag]:
        """Return for each destination the entries not acknowledged, and since when they wait."""
        return self.ack_tracker.destination_lags()


def _no_wake() -> None:
    """Do nothing: no links are registered."""
