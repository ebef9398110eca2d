"""The replication state of an instance.

It is created once, at the start, from the state stored by earlier runs (`remembering`), and lasts
as long as the instance. Links come and go: they use the `ReplicationSender` of a destination and
the `ReplicationReceiver` of a source. There is one of each, regardless of which link is open.

    a commit            -> committed: more may be settled; the links send and acknowledge
    an Ack, a downgrade -> acknowledged: if more is settled, publishers are notified, and the links
                           acknowledge to the instances that the entries came from

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
from server.replication.core.receiver import log_of
from server.replication.links.admin_addresses import NO_ADMIN_LOCATION, AdminLocation
from server.replication.links.introduction import PeerIntroduction
from server.replication.links.link_events import LinkDirection, LinkEvent, LinkEvents
from server.replication.links.peer_identity import PeerIdentities
from server.storage.journal.runs import place_number, run_at
from server.util.clock import ElapsedMicroseconds, WallMicroseconds
from server.util.counters import TrafficCounter

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.replication.apply.permissions import ApplyPermissions
    from server.storage.journal import JournalTopic
    from server.topics.durable_watermark import DurableWatermarks
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_MICROSECONDS: Final = 1_000_000
_MAX_REMEMBERED: Final = 10_000
_MAX_ERROR_LENGTH: Final = 250


@dataclass(slots=True)
class ReplicationDestination:
    """A Destination of this instance.

    Attributes:
        spec: its description.
        sender: sends to it; `sender.peer` is the instance that is connected, or was last.
        way: the link that leads there, or the last one; set by links when one is made.
        is_connected: whether there is a link; set by links.
        connected_at: time when the last link began, in microseconds since 1970; None if there was
            none.
        disconnected_at: time when a link ended last; None if none has.
        disconnects: number of links that have ended.
        bytes_out: bytes of batches that were sent.
        user: the user of this instance's logon there; empty without a logon or a connection yet.
        admin: address of the admin interface of the instance that is connected, or was last.
        trouble: the reason why there is no link, as text, as far as it is known.
    """

    spec: DestinationSpec
    sender: ReplicationSender
    way: LinkDirection
    is_connected: bool = False
    connected_at: WallMicroseconds | None = None
    disconnected_at: WallMicroseconds | None = None
    disconnects: int = 0
    bytes_out: int = 0
    user: str = ""
    admin: AdminLocation = NO_ADMIN_LOCATION
    trouble: str = ""

    def note_trouble(self, reason: object) -> None:
        """Store the reason why there is no link."""
        self.trouble = str(reason)[:_MAX_ERROR_LENGTH]


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """The replication state when the instance started; see `remembering`.

    Attributes:
        log_id: identity of the transaction log.
        began: the first txid that it ever had.
        known: the dedup windows of the publishers.
        recent: the latest recorded entries.
        watermarks: the sequence numbers of publishers that may not be settled.
        cursors: by name of the source, the position up to which its log has been received.
        acknowledged: by name of the destination, the txid up to which it had all entries.
        logs: by name of another instance, the identity of the log that it had.
    """

    log_id: str
    began: int
    known: DedupWindow
    recent: RecentEntries
    watermarks: DurableWatermarks
    cursors: Mapping[str, ReceiveCursor]
    acknowledged: Mapping[str, int]
    logs: Mapping[str, str]


class ReplicationState:
    """The replication state of an instance.

    Args:
        description: the description of this instance for other instances.
        nonce: a number of this run.
        recollected: the state stored by earlier runs.
        destinations: the destinations, by name.
        least_sync: MinSyncDestinations.
        recorder: records entries from other instances.
        permits: decides which of these may be recorded.
        transaction_log: the log of this instance.
        clock: the time.
        elapsed: seconds of a monotonic clock.
        log: the event log, for downgrades and upgrades.

    Attributes:
        instance: name of this instance.
        group: its group.
        log_id: identity of its transaction log.
        began: the first txid that this log ever had.
        nonce: see above.
        description: see above; for the `Hello`.
        known: the dedup windows of the publishers.
        recent: the latest recorded entries.
        destinations: see above.
        acknowledgement: the settled position.
        permits: see above.
        events: events of links, emitted by the code that serves links.
        identities: the instances that have been met.
        received: number and bytes of the entries received from other instances.
    """

    def __init__(
        self,
        description: InstanceDescription,
        nonce: int,
        recollected: RecoveredState,
        destinations: Mapping[str, ReplicationDestination],
        least_sync: int,
        recorder: EntryRecorder,
        permits: ApplyPermissions,
        transaction_log: TransactionLog,
        clock: Clock,
        elapsed: Callable[[], float],
        log: ServerLog,
    ) -> None:
        self.instance: Final = description.name
        self.group: Final = description.group
        self.log_id: Final = recollected.log_id
        self.began: Final = recollected.began
        self.nonce: Final = nonce
        self.description: Final = description
        self.known: Final = recollected.known
        self.recent: Final = recollected.recent
        self.destinations: Final = destinations
        self.events: Final = LinkEvents()
        self.permits: Final = permits
        self.identities: Final = PeerIdentities(
            description.name, recollected.log_id, recollected.logs, log
        )
        self.received: Final = TrafficCounter()
        self._cursors: Final = dict(recollected.cursors)
        self._receivers: dict[str, ReplicationReceiver] = {}
        self._recorder = recorder
        self._transaction_log = transaction_log
        self._started: Final = transaction_log.last_txid
        self._clock = clock
        self._elapsed = elapsed
        self._log = log
        self._concerned: dict[JournalTopic, bool] = {}  # until `waited_for` changes
        self._go_on: Callable[[], None] = _nothing
        self._kept: list[str] = []  # destinations not downgraded at the last attempt
        self.acknowledgement: Final = AcknowledgementTracker(
            {name: one.sender for name, one in destinations.items()},
            frozenset(name for name, one in destinations.items() if one.spec.sync_type == "sync"),
            transaction_log.durable,
            self.elapsed,
            least_sync,
        )

    @property
    def now(self) -> WallMicroseconds:
        """The wall-clock time: for people and for messages, not for durations."""
        return WallMicroseconds(int(self._clock.now() * _MICROSECONDS))

    @property
    def elapsed(self) -> ElapsedMicroseconds:
        """The time of the monotonic clock that measures how long entries have waited."""
        return ElapsedMicroseconds(int(self._elapsed() * _MICROSECONDS))

    @property
    def durable(self) -> int:
        """The txid up to which everything is on stable storage here."""
        return self._transaction_log.durable

    @property
    def last_txid(self) -> int:
        """Txid of the last entry in the log of this instance."""
        return self._transaction_log.last_txid

    def bytes_behind(self, after: int) -> int:
        """Return about how many bytes of the log follow an entry."""
        return self._transaction_log.journal.bytes_behind(after)

    # Links.

    def use_links(self, go_on: Callable[[], None]) -> None:
        """Register a callback that wakes the links: there may be something to send or acknowledge.

        Args:
            go_on: called on the engine's thread after each commit of the log, and whenever more is
                settled; it must do no more than schedule a step.
        """
        self._go_on = go_on

    def receiver(self, name: str) -> ReplicationReceiver:
        """Return the receiver for a source; it is created for a new name."""
        receiver = self._receivers.get(name)
        if receiver is None:
            receiver = self._receivers[name] = ReplicationReceiver(
                self.instance,
                self.began,
                self.known,
                self.recent,
                self._recorder,
                self._cursors.get(name),
                self._started,
            )
        return receiver

    def cursors(self) -> dict[str, ReceiveCursor]:
        """Return the position received of each source's log, by name, also of absent sources."""
        found = {name: one.cursor for name, one in self._receivers.items()}
        current = {name: cursor for name, cursor in found.items() if cursor is not None}
        earlier = {name: one for name, one in self._cursors.items() if name not in found}
        return earlier | current

    def introduction(self, description: InstanceDescription) -> PeerIntroduction:
        """Return the introduction of this instance to another one, when a link begins.

        Args:
            description: of this instance, reduced to what the other one may learn.
        """
        return PeerIntroduction(
            **{name: getattr(description, name) for name in InstanceDescription.__struct_fields__},
            runs=tuple(self._transaction_log.runs()),
            read={
                name: (log_of(one.stream), one.txid, one.run)
                for name, one in self.cursors().items()
                if one.run is not None
            },
        )

    def branch_of(self, theirs: PeerIntroduction) -> LogBranch:
        """Return which entries are gone from the log of this instance, or of another one."""
        log, txid, run = theirs.read.get(self.instance, ("", 0, 0))
        own_runs = self._transaction_log.runs()
        has_lost = log == self.log_id and (
            txid > self._transaction_log.last_txid or run_at(own_runs, txid) != run
        )
        return LogBranch(theirs.runs, has_lost, own_runs)

    @property
    def receivers(self) -> Mapping[str, ReplicationReceiver]:
        """All sources that have connected in this run, by name."""
        return self._receivers

    def look_again(self, mended: int = 0) -> None:
        """Make all senders retry damaged entries.

        Args:
            mended: the txid of an entry that has been repaired; 0 if some have been given up.
        """
        for destination in self.destinations.values():
            destination.sender.look_again(mended)
        self._go_on()

    # Equivalent positions at other instances.

    def places(self, txid: int) -> list[tuple[int, int]]:
        """See `AcknowledgementState.places`."""
        places = {
            log_of(one.stream): (one.txid, one.run or 0) if txid >= self._started else (0, 0)
            for name, one in self._cursors.items()
            if name not in self._receivers
        }
        for receiver in self._receivers.values():
            place = receiver.place_of(txid)
            if place is not None:
                log, last = place
                places[log] = last, receiver.run_at(last) or 0
        return [(place_number(log, run), last) for log, (last, run) in places.items()]

    # Settled entries.

    @property
    def settled(self) -> int:
        """The txid up to which everything is settled."""
        return self.acknowledgement.settled

    def concerns(self, topic: JournalTopic) -> bool:
        """Return whether messages of a topic may go to a destination that is waited for."""
        concerned = self._concerned.get(topic)
        if concerned is None:
            if len(self._concerned) >= _MAX_REMEMBERED:
                self._concerned.clear()
            concerned = self._concerned[topic] = any(
                self.destinations[name].sender.concerns(topic)
                for name in self.acknowledgement.waited_for
            )
        return concerned

    def committed(self) -> None:
        """Note a commit: more of the log is on stable storage.

        The transaction log calls this, and notifies its own waiters itself.
        """
        acknowledgement, log = self.acknowledgement, self._transaction_log
        acknowledgement.recorded(log.last_txid, self.elapsed)
        acknowledgement.reached(log.durable)
        acknowledgement.find_out()
        self._go_on()

    def acknowledged(self) -> None:
        """Update the settled position after progress, a downgrade or an upgrade of a destination.

        To be called after `acknowledge`, `resume` and `learn` of a `ReplicationSender`; outboxes
        are to be flushed after that.
        """
        if self.acknowledgement.find_out():
            self._transaction_log.has_settled()
            self._go_on()

    # Downgrades and upgrades.

    def downgrade(self, name: str) -> bool:
        """Stop waiting for a destination, on any caller's request; return whether that is new."""
        is_new = self.acknowledgement.downgrade(name)
        if is_new:
            self._downgraded([name])
        return is_new

    def upgrade(self, name: str) -> bool:
        """Wait for a destination again; return whether that is new."""
        is_new = self.acknowledgement.upgrade(name)
        if is_new:
            self._upgraded([name])
        return is_new

    def downgrade_late(self, age: int) -> list[str]:
        """Downgrade the destinations that entries have waited too long for.

        MinSyncDestinations may prevent the downgrade of some.

        Args:
            age: the limit, in microseconds.

        Returns:
            The names of the downgraded destinations.
        """
        names = self.acknowledgement.downgrade_late(age, self.elapsed)
        self._downgraded(names, age)
        kept = self.acknowledgement.late(age, self.elapsed)
        for name in kept:
            if name not in self._kept:
                least = self.acknowledgement.least_sync
                self._log.emit("1E-0024", destination=name, least=least)
        self._kept = kept
        return names

    def upgrade_recovered(self, age: int) -> list[str]:
        """Upgrade the destinations that no entry has waited for that long.

        Args:
            age: the limit, in microseconds.

        Returns:
            The names of the upgraded destinations.
        """
        names = self.acknowledgement.upgrade_recovered(age, self.elapsed)
        self._upgraded(names)
        return names

    def _downgraded(self, names: Sequence[str], age: int | None = None) -> None:
        self._concerned.clear()
        for name in names:
            if age is None:
                self._log.emit("21-0020", destination=name)
            else:
                self._log.emit("29-0104", destination=name, seconds=age // _MICROSECONDS)
            self.events.tell(LinkEvent.DOWNGRADE, self.destinations[name].way)
        if names:
            self.acknowledged()

    def _upgraded(self, names: Sequence[str]) -> None:
        self._concerned.clear()
        for name in names:
            way = self.destinations[name].way
            self._log.emit("29-0105", client=way.client)
            self.events.tell(LinkEvent.UPGRADE, way)

    def waiting(self) -> Sequence[DestinationLag]:
        """Return for each destination the entries not acknowledged, and since when they wait."""
        return self.acknowledgement.waiting()


def _nothing() -> None:
    """Do nothing: no links are registered."""
