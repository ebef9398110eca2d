"""What an instance has of replication as long as it lives.

It is made once, at the start, with what is remembered from earlier runs (`remembering`), and lasts
as long as the instance. Links come and go: they use the `Sender` of a destination and the
`Receiver` of a source, of which there is one each, whoever is connected.

    a commit            -> committed: more may be settled; the links send, and acknowledge
    an Ack, a downgrade -> acknowledged: if more is settled, publishers are told, and the links
                           acknowledge to the instances that this one has it from

Everything happens on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.together import InstanceDescription
from server.base.clock import ElapsedMicroseconds, WallMicroseconds
from server.base.tally import Tally
from server.journal.runs import place_number, run_at
from server.links.admin_addresses import NOWHERE, AdminInterface
from server.links.events import LinkEvent, LinkEvents, Way
from server.links.identities import Identities
from server.links.introduction import Introduction
from server.replication import (
    Acknowledgement,
    Branch,
    Cursor,
    Known,
    Receiver,
    Recent,
    Recorder,
    Sender,
    Waiting,
)
from server.replication.receiver import log_of

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.base.clock import Clock
    from server.base.log import Log
    from server.journal import Topic
    from server.topics.incoming_permits import IncomingPermits
    from server.topics.transaction_log import TransactionLog
    from server.topics.unsettled import Unsettled

_MICROSECONDS: Final = 1_000_000
_MOST_REMEMBERED: Final = 10_000
_LONGEST_TROUBLE: Final = 250


@dataclass(slots=True)
class OwnDestination:
    """A Destination of this instance.

    Attributes:
        spec: its description.
        sender: what sends to it; `sender.peer` is who is there, or was last.
        way: the link that leads there, or the last one; links set it when one is made.
        is_connected: whether there is one; links say so.
        connected_at: when the last one began, in microseconds since 1970; None if there was none.
        disconnected_at: when the last one ended that has; None if none has.
        disconnects: how many have ended.
        bytes_out: bytes of batches that were sent.
        user: as whom this instance logs on there; empty if it does not, or has not connected.
        admin: where the admin interface is of the instance that is there, or was last.
        trouble: why there is no link, in words, as far as that is known.
    """

    spec: DestinationSpec
    sender: Sender
    way: Way
    is_connected: bool = False
    connected_at: WallMicroseconds | None = None
    disconnected_at: WallMicroseconds | None = None
    disconnects: int = 0
    bytes_out: int = 0
    user: str = ""
    admin: AdminInterface = NOWHERE
    trouble: str = ""

    def note_trouble(self, reason: object) -> None:
        """Keep in mind why there is no link."""
        self.trouble = str(reason)[:_LONGEST_TROUBLE]


@dataclass(frozen=True, slots=True)
class Recollected:
    """What there was when the instance started; see `remembering`.

    Attributes:
        log_id: identity of the transaction log.
        began: the first txid that it ever had.
        known: what there is of each publisher.
        recent: what was recorded last.
        unsettled: which numbers of publishers may not be settled.
        cursors: by name of the source, how far its log has been taken in.
        acknowledged: by name of the destination, the txid up to which it had everything.
        logs: by name of another instance, the identity of the log that it had.
    """

    log_id: str
    began: int
    known: Known
    recent: Recent
    unsettled: Unsettled
    cursors: Mapping[str, Cursor]
    acknowledged: Mapping[str, int]
    logs: Mapping[str, str]


class Replication:
    """What an instance has of replication.

    Args:
        description: what other instances have to know of this one.
        nonce: a number of this run.
        recollected: what is remembered from earlier runs.
        destinations: by name.
        least_sync: MinSyncDestinations.
        recorder: where entries from other instances go.
        permits: what of these may be recorded.
        transaction_log: the log of this instance.
        clock: the time.
        elapsed: seconds since some moment, never going back.
        log: told of downgrades and upgrades.

    Attributes:
        instance: name of this instance.
        group: its group.
        log_id: identity of its transaction log.
        began: the first txid that this log ever had.
        nonce: see above.
        description: see above; for the `Hello`.
        known: what there is of each publisher.
        recent: what was recorded last.
        destinations: see above.
        acknowledgement: what is settled.
        permits: see above.
        events: tells of what happens to links; who serves links has it told.
        identities: which instances have been met.
        received: entries that other instances have sent, and bytes of these.
    """

    def __init__(
        self,
        description: InstanceDescription,
        nonce: int,
        recollected: Recollected,
        destinations: Mapping[str, OwnDestination],
        least_sync: int,
        recorder: Recorder,
        permits: IncomingPermits,
        transaction_log: TransactionLog,
        clock: Clock,
        elapsed: Callable[[], float],
        log: Log,
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
        self.identities: Final = Identities(
            description.name, recollected.log_id, recollected.logs, log
        )
        self.received: Final = Tally()
        self._cursors: Final = dict(recollected.cursors)
        self._receivers: dict[str, Receiver] = {}
        self._recorder = recorder
        self._transaction_log = transaction_log
        self._started: Final = transaction_log.last_txid
        self._clock = clock
        self._elapsed = elapsed
        self._log = log
        self._concerned: dict[Topic, bool] = {}  # what it is about, for those who are waited for
        self._go_on: Callable[[], None] = _nothing
        self._kept: list[str] = []  # from a downgrade, when one was asked for last
        self.acknowledgement: Final = Acknowledgement(
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
        """The time of the clock that measures how long entries have waited."""
        return ElapsedMicroseconds(int(self._elapsed() * _MICROSECONDS))

    @property
    def durable(self) -> int:
        """The txid up to which everything is on stable storage here."""
        return self._transaction_log.durable

    @property
    def last_txid(self) -> int:
        """Of the last entry in the log of this instance."""
        return self._transaction_log.last_txid

    def bytes_behind(self, after: int) -> int:
        """About how many bytes of the log are behind an entry."""
        return self._transaction_log.journal.bytes_behind(after)

    # Links.

    def use_links(self, go_on: Callable[[], None]) -> None:
        """Let links go on whenever there may be something to send or to acknowledge.

        Args:
            go_on: called on the engine's thread after each commit of the log, and whenever more is
                settled; it must do no more than see to it that a slice of work is done soon.
        """
        self._go_on = go_on

    def receiver(self, name: str) -> Receiver:
        """The receiver for a source; it is made for a name that has not been seen before."""
        receiver = self._receivers.get(name)
        if receiver is None:
            receiver = self._receivers[name] = Receiver(
                self.instance,
                self.began,
                self.known,
                self.recent,
                self._recorder,
                self._cursors.get(name),
                self._started,
            )
        return receiver

    def cursors(self) -> dict[str, Cursor]:
        """By name of the source, how far its log has been taken in, whether it is there or not."""
        found = {name: one.cursor for name, one in self._receivers.items()}
        current = {name: cursor for name, cursor in found.items() if cursor is not None}
        earlier = {name: one for name, one in self._cursors.items() if name not in found}
        return earlier | current

    def introduction(self, description: InstanceDescription) -> Introduction:
        """Return the introduction of this instance to another one, when a link begins.

        Args:
            description: of this instance, as far as it is told.
        """
        return Introduction(
            **{name: getattr(description, name) for name in InstanceDescription.__struct_fields__},
            runs=tuple(self._transaction_log.runs()),
            read={
                name: (log_of(one.stream), one.txid, one.run)
                for name, one in self.cursors().items()
                if one.run is not None
            },
        )

    def branch_of(self, theirs: Introduction) -> Branch:
        """Return which entries are gone from the log of this instance, or of another one."""
        log, txid, run = theirs.read.get(self.instance, ("", 0, 0))
        own_runs = self._transaction_log.runs()
        has_lost = log == self.log_id and (
            txid > self._transaction_log.last_txid or run_at(own_runs, txid) != run
        )
        return Branch(theirs.runs, has_lost, own_runs)

    @property
    def receivers(self) -> Mapping[str, Receiver]:
        """All sources that have connected in this run, by name."""
        return self._receivers

    def look_again(self, mended: int = 0) -> None:
        """Have what is damaged looked at once more by all who send it.

        Args:
            mended: the txid of an entry that has been mended; 0 if some have been given up.
        """
        for destination in self.destinations.values():
            destination.sender.look_again(mended)
        self._go_on()

    # The same place elsewhere.

    def places(self, txid: int) -> list[tuple[int, int]]:
        """See `Settlement.places`."""
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

    # What is settled.

    @property
    def settled(self) -> int:
        """The txid up to which everything is settled."""
        return self.acknowledgement.settled

    def concerns(self, topic: Topic) -> bool:
        """Whether what is published to a topic may go to a destination that is waited for."""
        concerned = self._concerned.get(topic)
        if concerned is None:
            if len(self._concerned) >= _MOST_REMEMBERED:
                self._concerned.clear()
            concerned = self._concerned[topic] = any(
                self.destinations[name].sender.concerns(topic)
                for name in self.acknowledgement.waited_for
            )
        return concerned

    def committed(self) -> None:
        """More of the log is on stable storage; the transaction log says so, and goes on itself."""
        acknowledgement, log = self.acknowledgement, self._transaction_log
        acknowledgement.recorded(log.last_txid, self.elapsed)
        acknowledgement.reached(log.durable)
        acknowledgement.find_out()
        self._go_on()

    def acknowledged(self) -> None:
        """A destination has got further, or is waited for no more, or again.

        To be called after `acknowledge`, `resume` and `learn` of a `Sender`; outboxes are to be
        flushed after that.
        """
        if self.acknowledgement.find_out():
            self._transaction_log.has_settled()
            self._go_on()

    # Who is waited for.

    def downgrade(self, name: str) -> bool:
        """Wait for a destination no more, whoever asks for that; returns whether that is new."""
        is_new = self.acknowledgement.downgrade(name)
        if is_new:
            self._downgraded([name])
        return is_new

    def upgrade(self, name: str) -> bool:
        """Wait for a destination again; returns whether that is new."""
        is_new = self.acknowledgement.upgrade(name)
        if is_new:
            self._upgraded([name])
        return is_new

    def downgrade_late(self, age: int) -> list[str]:
        """Downgrade the destinations that something has waited for too long.

        MinSyncDestinations may keep some of them from it.

        Args:
            age: microseconds that are too long.

        Returns:
            Their names.
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
        """Upgrade the destinations that nothing has waited for as long as that.

        Args:
            age: microseconds.

        Returns:
            Their names.
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

    def waiting(self) -> Sequence[Waiting]:
        """What each destination has not acknowledged, and since when."""
        return self.acknowledgement.waiting()


def _nothing() -> None:
    """Nobody has to go on."""
