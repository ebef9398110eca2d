"""The simulation of replication, with a queue that all instances share, and workers.

Publishers publish to the queue's topic; workers consume at one instance at a time, acknowledge what
they have got, there or where they have moved to meanwhile, go away without a word, and come back.
What must be true whenever a message is delivered is in `Workshop.delivered`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Sequence
from functools import partial
from typing import Any

from server.queues.core import (
    Acked,
    Consumer,
    Deferred,
    Expired,
    MessageDetails,
    OwnershipTransfers,
    PublisherSequence,
    Queue,
    QueueDelivery,
    QueueSettings,
    Sent,
    Transferred,
    TransferRequest,
    TransferResponse,
    decode,
    decode_peer_message,
    encode,
    encode_peer_message,
)
from server.queues.core.inspection import all_offsets
from server.queues.core.states import LEASED
from server.replication.core import MeshRouter, PeerMessage, RoutedMessage, hops
from server.storage.journal import JournalEntryKind
from server.storage.journal.format.layout import KIND, SEQUENCE, TIMESTAMP, EntryRow
from server.util.ranges import Ranges
from tests.replication.basics import MILLISECOND, ORDERS
from tests.replication.connection import Connection
from tests.replication.instance import Instance
from tests.replication.simulation import Faults, World
from tests.replication.topologies import Topology
from tests.replication.violation import Violation

CLIENT, TOPIC, ORIGIN = 2, 10, 11


class Workshop(World):
    """A world with workers."""

    def __init__(
        self,
        seed: int,
        topology: Topology,
        faults: Faults | None = None,
        make: type[Host] | None = None,
        trouble: int = 8,
        messages: int = 12,
        workers: int = 2,
        initial_owner: str | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("max_per_subscription_backlog", 5)
        self.settings = QueueSettings(**settings)
        self.initial_owner = initial_owner
        self.deliveries: Counter[PublisherSequence] = Counter()
        self.reasons: Counter[PublisherSequence] = Counter()
        self.homes_of: defaultdict[PublisherSequence, set[str]] = defaultdict(set)
        self.taken_over: set[PublisherSequence] = set()
        self.lost: set[PublisherSequence] = set()
        self.acknowledged: set[PublisherSequence] = set()
        self.words: Counter[str] = Counter()
        super().__init__(seed, topology, faults, messages, make or Host, trouble)
        names = topology.instances
        self.workers = [
            Worker(
                self,
                f"worker {number}",
                self.random.sample(names, self.random.randrange(1, len(names) + 1)),
                None if number == 0 else self.random.choice((None, "even")),
            )
            for number in range(workers)
        ]

    def host(self, name: str) -> Host:
        instance = self.instances[name]
        assert isinstance(instance, Host)
        return instance

    @property
    def hosts(self) -> list[Host]:
        return [self.host(name) for name in self.instances]

    def owners(self, mark: PublisherSequence) -> list[str]:
        """The instances that hold a message for their own, those that are down by their disks."""
        return [host.name for host in self.hosts if host.owns(mark)]

    def may_be_lost(self, mark: PublisherSequence) -> bool:
        """Whether a message was on its way to somebody under at-most-once when that ended."""
        return mark in self.lost

    def delivered(self, host: Host, mark: PublisherSequence) -> None:
        """See that a message may be delivered by an instance."""
        self.deliveries[mark] += 1
        excused = mark in self.taken_over or len(self.homes_of[mark]) > 1
        if not excused:
            others = [name for name in self.owners(mark) if name != host.name]
            if others:
                raise Violation(f"{host.name} delivers {mark}, which {others} own, too")
            for other in self.hosts:
                if other is not host and other.is_up and other.has_leased(mark):
                    raise Violation(f"{host.name} delivers {mark}, which {other.name} has leased")
        is_late = self.settings.at_most_once and excused  # it had been decided before
        if mark in host.ended and not is_late:
            raise Violation(f"{host.name} delivers {mark}, and knows that it is done with")
        bound = 1 + len(self.homes_of[mark] - {host.name})
        if not self.settings.at_most_once:
            bound += self.reasons[mark]
        if self.deliveries[mark] > bound and mark not in self.taken_over:
            raise Violation(
                f"{host.name} delivers {mark} for the {self.deliveries[mark]}th time; "
                f"{bound} can be explained"
            )


class Matching:
    """The one filter that there is: even numbers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._has_filter = False

    def add(self, content_filter: Hashable) -> None:
        self._has_filter = True

    def discard(self, content_filter: Hashable) -> None:
        self._has_filter = False

    def is_volatile(self, content_filter: Hashable) -> bool:
        return False

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        log = self._host.log
        rows = [log.rows[txid - log.first_txid] for txid in txids]
        return [["even"] if self._has_filter and row[SEQUENCE] % 2 == 0 else [] for row in rows]


class Host(Instance):
    """An instance that has the queue."""

    sharing_type = OwnershipTransfers
    world: Workshop
    owned: set[PublisherSequence]  # while it is down

    def boot(self) -> None:
        if self.is_up:
            return
        super().boot()
        self.router = MeshRouter(self.name, self.life << 32)
        self.core, self.sharing = self.make_queue()
        self.ended: set[PublisherSequence] = set()
        self.fold(self.core)
        self.core.finish_recovery(self.world.now)
        self.handed_out: set[PublisherSequence] = set()
        self.words: list[tuple[int, Any]] = []
        self.sent: list[tuple[int, QueueDelivery]] = []
        self.consumers: dict[Worker, Consumer] = {}
        self.timer: int | None = None
        self._beat(self.life)
        self.wake()

    def die(self) -> None:
        for mark in self.handed_out:
            self.world.reasons[mark] += 1
        for _, delivery in self.sent:
            self.world.lost.update(map(self.mark, delivery.txids))
        super().die()
        for worker in list(self.consumers):
            worker.lost(self)
        self.log.crash()
        core, _ = self.make_queue()
        self.fold(core)
        entries = core.lifecycle.entries
        self.owned = {
            entries.bookmark(offset) for offset in all_offsets(core) if not entries.owner(offset)
        }

    def make_queue(self) -> tuple[Queue, OwnershipTransfers]:
        core = Queue(
            self.world.settings,
            lambda: Matching(self),
            self.name,
            was_recorded=self.was_recorded,
            is_missing=self.is_missing,
        )

        def reach(name: str) -> bool | None:
            return self.router.is_reachable(name, self.world.now)

        return core, self.sharing_type(core, reach, self.world.initial_owner)

    def fold(self, core: Queue) -> None:
        """Let happen again what the log has."""
        for offset in range(len(self.log.rows)):
            self.apply(core, offset, is_over=True)

    def was_recorded(self, mark: PublisherSequence) -> bool:
        client, sequence = mark
        highest = self.log.sequences.get(client, 0)
        if highest:
            return sequence <= highest and not self.is_missing(mark)
        if not self.log.first_txid <= sequence <= self.log.last_txid:
            return False
        return self.log.rows[sequence - self.log.first_txid][CLIENT] == client

    def is_missing(self, mark: PublisherSequence) -> bool:
        client, sequence = mark
        return sequence in Ranges(self.known.gaps(client))

    # The log.

    def applied(self, first_txid: int) -> None:
        for offset in range(first_txid - self.log.first_txid, len(self.log.rows)):
            row = self.log.rows[offset]
            if (
                row[KIND] == JournalEntryKind.PUBLISH
                and not self.log.names.origins[row[ORIGIN]].path
            ):
                self.world.homes_of[row[CLIENT], row[SEQUENCE]].add(self.name)
            self.apply(self.core, offset, is_over=False)

    def published_twice(
        self, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        owner = max(self.first_owner(one) or self.name for one in publishers)
        self.core.resolve_dual_ownership(marks, owner, self.world.now)
        self.record()
        self.wake()

    def apply(self, core: Queue, offset: int, *, is_over: bool) -> None:
        row = self.log.rows[offset]
        if self.log.names.topics[row[TOPIC]] != ORDERS:
            return
        path = hops(self.log.names.origins[row[ORIGIN]].path)
        if row[KIND] == JournalEntryKind.QUEUE_EVENT:
            event = decode(self.log.data[offset])
            if isinstance(event, Acked | Deferred | Expired | Sent):
                self.ended.update(event.bookmarks)
            if not path:
                if is_over:
                    core.replay(event)
            elif is_over:
                core.replay(event, row[TIMESTAMP])
            else:
                core.apply_remote_event(event, self.world.now)
            return
        owner = self.first_owner(path[0].name if path else self.name)
        core.lifecycle.enqueue(
            [row[0]], [row[TIMESTAMP]], row[CLIENT], [row[SEQUENCE]], self.details(row, owner)
        )

    def details(self, row: EntryRow, owner: str) -> MessageDetails:
        """What would be in the bodies comes from the publisher's number."""
        settings = self.world.settings
        return MessageDetails(
            owners=[owner],
            priorities=[row[SEQUENCE] % 3] if settings.prioritized else None,
            keys=[row[SEQUENCE] % 4] if settings.keyed else None,
        )

    def first_owner(self, publisher: str) -> str:
        return self.sharing.initial_owner(publisher)

    def record(self) -> None:
        for event in self.core.drain_events():
            if isinstance(event, Acked | Deferred | Expired):
                self.ended.update(event.bookmarks)
            if self.sharing.is_proxy and isinstance(event, Transferred):
                self.world.taken_over.update(event.bookmarks)
            self.log.append(
                ORDERS, 0, 0, encode(event), JournalEntryKind.QUEUE_EVENT, now=self.world.now
            )

    # What is believed.

    def owns(self, mark: PublisherSequence) -> bool:
        if self.is_up:
            entries = self.core.lifecycle.entries
            offset = entries.find(mark)
            return offset is not None and entries.is_present(offset) and not entries.owner(offset)
        return mark in self.owned

    def has_leased(self, mark: PublisherSequence) -> bool:
        entries = self.core.lifecycle.entries
        offset = entries.find(mark)
        return offset is not None and entries.state(offset) == LEASED

    # Turns.

    def _turn(self, life: int) -> None:
        super()._turn(life)
        if life == self.life:
            self.work()

    def work(self) -> None:
        now = self.world.now
        for offset, lease in self.core.lifecycle.leases.by_offset.items():
            if lease.expires_at is not None and lease.expires_at <= now:
                self.world.reasons[self.core.lifecycle.entries.bookmark(offset)] += 1
        deliveries = self.core.assign_messages(now)
        said = self.sharing.process_transfers(now)
        self.record()
        last = self.log.last_txid
        self.words += [(last, one) for one in said]
        if self.core.settings.at_most_once:
            self.sent += [(last, delivery) for delivery in deliveries]
        else:
            for delivery in deliveries:
                self.hand_out(delivery)
        self.say_what_is_stored()
        if said or self.log.last_txid > self.log.durable or self.core.is_behind:
            self.wake()
        moments = [
            one for one in (self.core.next_deadline, self.sharing.next_deadline) if one is not None
        ]
        if moments and (self.timer is None or min(moments) < self.timer or self.timer <= now):
            self.timer = max(min(moments), now + MILLISECOND)
            life = self.life
            self.world.at(self.timer - now, lambda: self.wake() if self.life == life else None)

    def say_what_is_stored(self) -> None:
        while self.sent and self.sent[0][0] <= self.log.durable:
            self.hand_out(self.sent.pop(0)[1])
        while self.words and self.words[0][0] <= self.log.durable:
            _, (to, word) = self.words.pop(0)
            self.world.words[type(word).__name__] += 1
            self.dispatch(self.router.route_message(to, "orders", encode_peer_message(word)))

    def hand_out(self, delivery: QueueDelivery) -> None:
        worker = delivery.consumer.subscription
        assert isinstance(worker, Worker)
        marks = list(map(self.mark, delivery.txids))
        if self.consumers.get(worker) is not delivery.consumer:
            self.world.lost.update(marks)
            return
        for mark in marks:
            self.handed_out.add(mark)
            self.world.delivered(self, mark)
            worker.got(mark)

    def mark(self, txid: int) -> PublisherSequence:
        row = self.log.rows[txid - self.log.first_txid]
        return row[CLIENT], row[SEQUENCE]

    # Consumers.

    def consume(self, worker: Worker) -> None:
        consumer = self.consumers[worker] = Consumer(worker.name, worker, 4)
        consumer.subscription = worker
        self.core.attach(consumer, worker.wants)
        self.wake()

    def leave(self, worker: Worker) -> None:
        consumer = self.consumers.pop(worker)
        for seat in consumer.slots:
            for offset in seat.held_offsets:
                self.world.reasons[self.core.lifecycle.entries.bookmark(offset)] += 1
        self.core.detach(consumer, self.world.now)
        self.record()
        self.wake()

    def acknowledge(self, worker: Worker, marks: list[PublisherSequence]) -> None:
        self.core.acknowledge(marks, self.world.now, worker)
        self.record()
        self.wake()

    # Words.

    def _beat(self, life: int) -> None:
        if life == self.life:
            self.dispatch(self.router.make_probes(self.world.now))
            self.world.at(300 * MILLISECOND, lambda: self._beat(life))

    def dispatch(self, parcels: list[RoutedMessage]) -> None:
        for peer, word in parcels:
            connection = self.world.find(self.name, peer)
            if connection is not None and connection.open[self.name]:
                connection.send(self.name, word)

    def receive(self, connection: Connection, frame: Any) -> None:
        if not isinstance(frame, PeerMessage):
            super().receive(connection, frame)
            return
        now = self.world.now
        if self.world.random.random() < 0.1:
            return  # it is lost
        received = self.router.receive_message(frame, connection.other(self.name), now)
        self.dispatch(received.messages)
        if received.sender and (frame.to == self.name or self.sharing.is_proxy):
            word = decode_peer_message(frame.body)
            assert isinstance(word, TransferRequest | TransferResponse)
            if frame.to == self.name or isinstance(word, TransferRequest):
                self.sharing.handle_peer_message(word, received.sender, now)
                self.wake()

    def _meet(self, connection: Connection, hello: Any) -> None:
        super()._meet(connection, hello)
        self.router.add_peer(hello.instance)

    def disconnected(self, connection: Connection) -> None:
        super().disconnected(connection)
        peer = connection.other(self.name)
        current = self.world.find(self.name, peer)
        if current is None or current is connection or not current.open[self.name]:
            self.router.remove_peer(peer)


class Worker:
    """Consumes, at one instance at a time."""

    def __init__(self, world: Workshop, name: str, homes: list[str], wants: str | None) -> None:
        self.world = world
        self.name = name
        self.homes = homes
        self.wants = wants
        self.host: Host | None = None
        self.to_do: list[PublisherSequence] = []
        world.at(world.random.randrange(0, 200) * MILLISECOND, self._live)

    def got(self, mark: PublisherSequence) -> None:
        self.to_do.append(mark)

    def lost(self, host: Host) -> None:
        """The instance is gone; what was got there may be acknowledged elsewhere, or forgotten."""
        self.host = None
        self._forget_some()

    def _forget_some(self) -> None:
        if self.world.random.random() < 0.5:
            self.to_do.clear()

    def _live(self) -> None:
        random = self.world.random
        if self.host is not None and random.random() < 0.1 and not self.world.is_calm:
            self.host.leave(self)
            self.host = None
            self._forget_some()
        elif self.host is None:
            up = [home for home in self.homes if self.world.host(home).is_up]
            if up:
                self.host = self.world.host(random.choice(up))
                self.host.consume(self)
        elif self.to_do:
            count = random.randrange(1, len(self.to_do) + 1)
            random.shuffle(self.to_do)
            done, self.to_do = self.to_do[:count], self.to_do[count:]
            self.world.acknowledged.update(done)
            self.host.acknowledge(self, done)
        self.world.at(random.randrange(1, 60) * MILLISECOND, partial(Worker._live, self))
