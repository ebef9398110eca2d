"""Instances, publishers and a network in one process, on a clock that is a heap of events.

Everything that happens follows from one seed. What fails in the world: processes die and come back
without the unsynced end of their log, disks are replaced by empty ones, connections are cut while
things are on their way, the network is cut in one direction or both, an end of a connection is gone
without the other one knowing. What is checked while that goes on, and at the end, is in
`invariants`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from server.journal import Origin, Topic
from server.replication import (
    Ack,
    Acknowledgement,
    Batch,
    Begin,
    Columns,
    FrameReader,
    Hello,
    Knowledge,
    Known,
    Receiver,
    Recent,
    Recollection,
    Recorded,
    Refused,
    Remembered,
    Resume,
    Routes,
    Sender,
    TopicRoute,
    encode,
    hops,
    pack,
    peer_of,
    refusal,
    unpack,
)
from server.wire.bookmarks import client_hash
from tests.replication.memory import Log, LogReader
from tests.replication.topologies import Topology
from tests.replication.violation import Violation

MILLISECOND = 1000
SECOND = 1_000_000
ORDERS = Topic("json", "orders")
LOCAL = Topic("json", "local")


@dataclass
class Faults:
    """How often what happens, as weights."""

    kill: int = 4
    forget: int = 0
    replace_disk: int = 0
    cut: int = 4
    one_way: int = 3
    partition: int = 4
    half_open: int = 2
    stall: int = 1
    remove_journals: int = 0
    downgrade: int = 0


class World:
    """All there is.

    Args:
        seed: everything follows from it.
        topology: who replicates to whom.
        faults: what goes wrong how often.
        messages: that each publisher publishes.
        make: makes instances; mutants have their own way.
    """

    def __init__(
        self,
        seed: int,
        topology: Topology,
        faults: Faults | None = None,
        messages: int = 12,
        make: type[Instance] | None = None,
        trouble: int = 6,
    ) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.topology = topology
        self.faults = faults or Faults()
        self.now = 0
        self.in_bytes = seed % 8 == 0
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0
        self.blocked: set[tuple[str, str]] = set()
        self.connections: list[Connection] = []
        self.is_calm = False
        self.acked: dict[tuple[int, int], tuple[str, int]] = {}
        self.published: dict[tuple[int, int], bytes] = {}
        self.disk_losses: dict[str, int] = defaultdict(int)
        self.restarts = 0
        self.was_downgraded = False
        self.conflicts: set[tuple[int, int]] = set()
        self.journal: list[str] = []
        kind = make or Instance
        self.instances = {name: kind(self, name) for name in topology.instances}
        for instance in self.instances.values():
            instance.boot()
        self.publishers = [
            Publisher(self, f"publisher {number}", homes, messages)
            for number, homes in enumerate(topology.homes)
        ]
        self.trouble = trouble

    # Time.

    def at(self, delay: int, then: Callable[[], object]) -> None:
        self._count += 1
        heappush(self._events, (self.now + delay, self._count, then))

    def run(self, until: Callable[[], bool], limit: int, steps: int = 60_000) -> bool:
        """Let things happen until something is true; false if time is over before."""
        end = self.now + limit
        while self._events and not until():
            if self._events[0][0] > end or steps <= 0:
                return False
            self.now, _, then = heappop(self._events)
            steps -= 1
            then()
        return until()

    def say(self, text: str) -> None:
        self.journal.append(f"{self.now / SECOND:9.4f} {text}")

    # The network.

    def can_reach(self, one: str, other: str) -> bool:
        return (one, other) not in self.blocked

    def find(self, one: str, other: str) -> Connection | None:
        for connection in self.connections:
            if connection.is_between(one, other) and not connection.is_over:
                return connection
        return None

    # What goes wrong.

    def start_trouble(self) -> None:
        for _ in range(self.trouble):
            self.at(self.random.randrange(0, 2 * SECOND), self._something)

    def _something(self) -> None:
        faults = vars(self.faults)
        kinds = [kind for kind, weight in faults.items() if weight]
        kind = self.random.choices(kinds, [faults[kind] for kind in kinds])[0]
        name = self.random.choice(self.topology.instances)
        other = self.random.choice(self.topology.instances)
        getattr(self, f"_{kind}")(name, other)

    def _kill(self, name: str, other: str) -> None:
        instance = self.instances[name]
        if instance.is_up:
            self.say(f"kill {name}")
            self.restarts += 1
            instance.die()
            self.at(self.random.randrange(5, 800) * MILLISECOND, instance.boot)

    def _forget(self, name: str, other: str) -> None:
        if self.instances[name].is_up:
            self._kill(name, other)
            self.instances[name].remembered = None

    def _replace_disk(self, name: str, other: str) -> None:
        instance = self.instances[name]
        others = [one for one in self.instances.values() if one is not instance]
        # Of what was acknowledged somewhere, another instance has to have it.
        if instance.is_up and all(one.is_whole for one in others) and self._is_covered(instance):
            self.say(f"new disk for {name}")
            self.restarts += 1
            self.disk_losses[name] += 1
            instance.die()
            instance.lose_disk()
            self.at(self.random.randrange(5, 800) * MILLISECOND, instance.boot)

    def _is_covered(self, instance: Instance) -> bool:
        others: set[Any] = set()
        for one in self.instances.values():
            if one is not instance:
                others |= one.on_disk()
        return instance.on_disk() <= others

    def _cut(self, name: str, other: str) -> None:
        for connection in self.connections:
            if connection.is_between(name, other):
                self.say(f"cut {name} {other}")
                connection.cut()

    def _one_way(self, name: str, other: str) -> None:
        self._block((name, other))

    def _partition(self, name: str, other: str) -> None:
        self._block((name, other), (other, name))

    def _block(self, *ways: tuple[str, str]) -> None:
        self.say(f"block {ways}")
        self.blocked.update(ways)
        duration = self.random.randrange(5, 1000) * MILLISECOND
        self.at(duration, lambda: self._unblock(*ways))

    def _unblock(self, *ways: tuple[str, str]) -> None:
        self.blocked.difference_update(ways)
        for connection in self.connections:
            connection.flow()

    def _half_open(self, name: str, other: str) -> None:
        connection = self.find(name, other)
        if connection is not None:
            self.say(f"half open {name} {other}")
            connection.close(name, tell=False)
            self.at(300 * MILLISECOND, lambda: connection.close(other, tell=False))

    def _stall(self, name: str, other: str) -> None:
        instance = self.instances[name]
        instance.room = self.random.randrange(0, 4)
        self.at(self.random.randrange(5, 400) * MILLISECOND, instance.unstall)

    def _remove_journals(self, name: str, other: str) -> None:
        self.instances[name].remove_journals()

    def _downgrade(self, name: str, other: str) -> None:
        instance = self.instances[name]
        if instance.is_up:
            for destination in sorted(instance.settlement.waited_for):
                if self.random.random() < 0.5:
                    self.was_downgraded = True
                    instance.settlement.downgrade(destination)
                    again = instance.settlement
                    self.at(200 * MILLISECOND, partial(again.upgrade, destination))
            instance.wake()

    def heal(self) -> None:
        """Let everything be well from now on."""
        self.is_calm = True
        self.blocked.clear()
        for connection in self.connections:
            connection.flow()
        for instance in self.instances.values():
            instance.unstall()
            if instance.is_up:
                for name in list(instance.settlement.downgraded):
                    instance.settlement.upgrade(name)


class Connection:
    """A connection between two instances, with what is on its way."""

    def __init__(self, world: World, one: str, other: str) -> None:
        self.world = world
        self.ends = (one, other)
        self.open = {one: True, other: True}
        self.lives = {one: world.instances[one].life, other: world.instances[other].life}
        self.hello: dict[str, Hello] = {}
        self.readers = {one: FrameReader(1 << 24), other: FrameReader(1 << 24)}
        self._way: dict[str, list[Any]] = {one: [], other: []}
        self._moving: dict[str, bool] = {one: False, other: False}

    def is_between(self, one: str, other: str) -> bool:
        return {one, other} == set(self.ends)

    @property
    def is_over(self) -> bool:
        return not any(self.open.values())

    def other(self, name: str) -> str:
        return self.ends[1] if name == self.ends[0] else self.ends[0]

    def send(self, sender: str, frame: Any) -> None:
        if not self.open[sender]:
            return
        data = encode(frame, compress=True) if self.world.in_bytes else frame
        self._way[self.other(sender)].append(data)
        self.flow()

    def flow(self) -> None:
        for name, waiting in self._way.items():
            if waiting and not self._moving[name]:
                self._moving[name] = True
                self.world.at(self.world.random.randrange(100, 3000), partial(self._arrive, name))

    def _arrive(self, name: str) -> None:
        self._moving[name] = False
        if not self.world.can_reach(self.other(name), name) or self.is_over:
            return
        waiting = self._way[name]
        count = self.world.random.randrange(1, 4)
        arrived, waiting[:count] = waiting[:count], []
        instance = self.world.instances[name]
        for frame in arrived:
            if not self.open[name] or instance.life != self.lives[name] or not instance.is_up:
                break
            if frame == "closed":
                self.close(name, tell=False)
            elif self.world.in_bytes:
                reader = self.readers[name]
                place = self.world.random.randrange(len(frame) + 1)
                for part in (frame[:place], frame[place:]):
                    reader.feed(part)
                    while (whole := reader.next()) is not None:
                        instance.receive(self, whole)
            else:
                instance.receive(self, frame)
        self.flow()

    def close(self, name: str, *, tell: bool = True) -> None:
        """One end is closed."""
        if not self.open[name]:
            return
        self.open[name] = False
        if tell:
            self._way[self.other(name)].append("closed")
            self.flow()
            # Whoever hears nothing any more finds out by itself.
            self.world.at(400 * MILLISECOND, lambda: self.close(self.other(name), tell=False))
        instance = self.world.instances[name]
        if instance.is_up and instance.life == self.lives[name]:
            instance.disconnected(self)
        if self.is_over and self in self.world.connections:
            self.world.connections.remove(self)

    def cut(self) -> None:
        """Some of what is on its way is lost."""
        for waiting in self._way.values():
            del waiting[self.world.random.randrange(len(waiting) + 1) :]
        for name in self.ends:
            self.world.at(
                self.world.random.randrange(0, 2000), partial(self.close, name, tell=False)
            )


class Instance:
    """An instance: the core of replication, and as much around it as it takes."""

    sender_type = Sender
    receiver_type = Receiver
    known_type = Known

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.group = world.topology.groups.get(name, name)
        self.is_up = False
        self.life = 0
        self.log = Log(name)
        self.remembered: bytes | None = None
        self.room: int | None = None
        self.slowest = world.random.choice((1, 4, 4, 40)) * MILLISECOND  # its disk, for a commit
        self.loss = 0
        self.links = [link for link in world.topology.links if link.source == name]
        self.sources = [link.source for link in world.topology.links if link.destination == name]

    # A life.

    def boot(self) -> None:
        """Come up with what is on the disk."""
        if self.is_up:
            return
        self.is_up = True
        self.life += 1
        log = self.log
        log.crash()
        remembered = Remembered(log.identity, 0)
        if self.remembered is not None:
            found = unpack(self.remembered)
            if found.log == log.identity and found.txid <= log.durable:
                remembered = found
        self.recent = Recent(1000)
        is_whole = log.first_txid <= max(remembered.txid + 1, log.began)
        recollection = Recollection(remembered, self.recent, is_whole=is_whole)
        start = min([remembered.txid, *remembered.acknowledged.values()])
        reader = LogReader(log, max(start, log.first_txid - 1), lambda topic: True)
        while not reader.is_caught_up:
            for run in reader.read_on(100).runs():
                recollection.take(run)
        self.known = recollection.known
        self.known.highest = lambda client: self.log.sequences.get(client, 0)
        self.known.__class__ = self.known_type
        self.senders = {
            link.destination: self.sender_type(
                log,
                f"{log.identity}>{link.destination}",
                Routes([TopicRoute("json", "orders")], link.pass_through),
                remembered.acknowledged.get(link.destination, 0),
                most_under_way=400,
            )
            for link in self.links
        }
        self.receivers = {
            source: self.receiver_type(
                self.name,
                log.began,
                self.known,
                self.recent,
                SimulatedRecorder(self),
                remembered.cursors.get(source),
            )
            for source in self.sources
        }
        self.settlement = Acknowledgement(
            self.senders,
            frozenset(link.destination for link in self.links if link.is_sync),
            log.durable,
            self.world.now,
        )
        self.is_committing = False
        self.is_awake = False
        self.snapshot: tuple[int, bytes] | None = None
        self.waiting: list[tuple[int, Publisher, int]] = []
        life = self.life
        self.world.at(20 * MILLISECOND, lambda: self._remember(life))
        for link in self.links:
            self._connect(link.destination, life)

    def die(self) -> None:
        """All that is not on the disk is gone."""
        self.is_up = False
        self.life += 1
        for connection in list(self.world.connections):
            if self.name in connection.ends:
                connection.close(self.name)

    def lose_disk(self) -> None:
        """Come back with an empty one."""
        self.loss += 1
        self.log = Log(self.name, self.log.last_txid + 1000)
        self.remembered = None

    @property
    def is_whole(self) -> bool:
        """Whether it is there, and has got from all its sources what these had."""
        return self.is_up and all(
            self.world.instances[source].is_up
            and self.world.instances[source].senders[self.name].resynchronized
            for source in self.sources
        )

    def on_disk(self) -> set[tuple[int, int]]:
        """What a crash would leave, or has been removed because nobody needs it."""
        end = self.log.durable - self.log.first_txid + 1
        return {(row[2], row[3]) for row in self.log.rows[:end]}.union(self.log.removed)

    def path_of(self, message: tuple[int, int]) -> set[str] | None:
        """The instances that a message has been through, None if it is not there."""
        for row in self.log.rows:
            if (row[2], row[3]) == message:
                return {hop.name for hop in hops(self.log.names.origins[row[11]].path)}
        return None

    # Publishers.

    def publish(
        self, publisher: Publisher, client: int, sequence: int, body: bytes, topic: Topic
    ) -> None:
        """A publisher's message."""
        if sequence and sequence <= self.log.sequences.get(client, 0):
            self.waiting.append((self.log.last_txid, publisher, sequence))
        else:
            before = self.log.sequences.get(client, 0)
            txid = self.log.append(topic, client, sequence, body, now=self.world.now)
            if sequence:
                if sequence != before + 1:
                    self.known.noted(client, before, (sequence,))
                checksum = self.log.rows[-1][15]
                self.recent.note(client, (sequence,), (checksum,), (txid, txid), topic, Origin())
                self.waiting.append((txid, publisher, sequence))
            self.applied(txid)
        self.wake()

    def applied(self, first_txid: int) -> None:
        """Entries have been appended, from one on."""

    # Committing and acknowledging.

    def wake(self) -> None:
        """Look after everything soon."""
        if not self.is_awake and self.is_up:
            self.is_awake = True
            life = self.life
            self.world.at(self.world.random.randrange(0, 500), lambda: self._turn(life))

    def _turn(self, life: int) -> None:
        if life != self.life:
            return
        self.is_awake = False
        log = self.log
        self.settlement.recorded(log.last_txid, self.world.now)
        if log.durable < log.last_txid and not self.is_committing:
            self.is_committing = True
            end = log.last_txid
            delay = self.world.random.randrange(200, self.slowest)
            self.world.at(delay, lambda: self._committed(life, end))
        for connection in list(self.world.connections):
            if self.name in connection.ends:
                self._serve(connection)
        self.settlement.find_out()
        while self.waiting and self.waiting[0][0] <= self.settlement.settled:
            _, publisher, sequence = self.waiting.pop(0)
            self._check_ack(publisher, sequence)
            publisher.acknowledged(self, sequence)

    def _committed(self, life: int, end: int) -> None:
        if life != self.life:
            return
        self.is_committing = False
        self.log.durable = end
        self.settlement.reached(end)
        if self.snapshot is not None and self.snapshot[0] <= end:
            self.remembered = self.snapshot[1]
            self.snapshot = None
        self.wake()

    def _remember(self, life: int) -> None:
        if life != self.life:
            return
        log = self.log
        if self.snapshot is None:
            remembered = Remembered(
                log.identity,
                log.last_txid,
                {s: c for s, r in self.receivers.items() if (c := r.cursor) is not None},
                {name: sender.needed_from - 1 for name, sender in self.senders.items()},
                list(self.known.summary(log.sequences)),
            )
            self.snapshot = log.last_txid, pack(remembered)
            if log.last_txid <= log.durable:
                self.remembered, self.snapshot = self.snapshot[1], None
        if self.world.random.random() < 0.5:
            self._serve_all(flush=True)
        self.world.at(
            self.world.random.randrange(20, 120) * MILLISECOND, lambda: self._remember(life)
        )

    def _serve_all(self, *, flush: bool) -> None:
        for connection in list(self.world.connections):
            if self.name in connection.ends:
                self._serve(connection, flush=flush)

    def unstall(self) -> None:
        """The log takes entries again."""
        self.room = None
        if self.is_up:
            for receiver in self.receivers.values():
                if receiver.is_stalled:
                    self._note(receiver.go_on())
            self.wake()

    def remove_journals(self) -> None:
        """Remove what nobody needs."""
        if self.is_up:
            needed = [sender.needed_from for sender in self.senders.values()]
            self.log.remove_before(min([*needed, self.log.durable + 1]))

    # Links.

    def _connect(self, peer: str, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        world, other = self.world, self.world.instances[peer]
        current = world.find(self.name, peer)
        is_there = current is not None and current.open[self.name]
        if (
            not is_there
            and other.is_up
            and world.can_reach(self.name, peer)
            and world.can_reach(peer, self.name)
        ):
            if current is not None:
                current.close(peer, tell=False)
                current.close(self.name, tell=False)
            connection = Connection(world, self.name, peer)
            world.connections.append(connection)
            connection.send(self.name, self.hello())
            connection.send(peer, other.hello())
        world.at(world.random.randrange(20, 90) * MILLISECOND, lambda: self._connect(peer, life))

    def hello(self) -> Hello:
        return Hello(1, self.name, self.group, self.log.identity, self.log.began, nonce=self.life)

    def receive(self, connection: Connection, frame: Any) -> None:
        """What has come over a link."""
        peer = connection.other(self.name)
        match frame:
            case Hello():
                self._meet(connection, frame)
            case Begin():
                for answer in self.receivers[peer].begin(
                    peer_of(connection.hello[self.name]), frame, self.settlement.settled
                ):
                    connection.send(self.name, answer)
            case Resume():
                self.senders[peer].resume(frame)
            case Knowledge():
                self.senders[peer].learn(frame)
            case Ack():
                self.senders[peer].acknowledge(frame)
            case Batch():
                receiver = self.receivers[peer]
                if receiver.is_stalled:
                    # Nothing is read from a link meanwhile; here it is as if it were cut.
                    connection.close(self.name)
                    return
                self.check_batch(frame, peer)
                self._note(receiver.take(frame))
            case Refused(reason):
                raise Violation(reason)
        self.wake()

    def _meet(self, connection: Connection, hello: Hello) -> None:
        peer = hello.instance
        reason = refusal(self.hello(), hello)
        if reason is not None:
            raise Violation(reason)
        connection.hello[self.name] = hello
        if peer in self.receivers:
            self.receivers[peer].disconnected()
        if peer in self.senders:
            connection.send(self.name, self.senders[peer].connected(peer_of(hello)))

    def _note(self, taken: Any) -> None:
        for conflict in taken.conflicts:
            self.world.conflicts.add((conflict.client, conflict.sequence))

    def check_batch(self, batch: Batch, peer: str) -> None:
        """See that nothing comes back to where it has been."""
        for run in batch.runs:
            is_back = any(hop.name == self.name for hop in hops(run.origin.path))
            if is_back and not self.world.disk_losses:
                raise Violation(f"{peer} sent to {self.name} what came from there")
            if run.topic != ORDERS:
                raise Violation(f"{peer} sent {run.topic}")

    def disconnected(self, connection: Connection) -> None:
        peer = connection.other(self.name)
        current = self.world.find(self.name, peer)
        if current is not None and current is not connection and current.open[self.name]:
            return
        if peer in self.senders:
            self.senders[peer].disconnected()
        if peer in self.receivers:
            self.receivers[peer].disconnected()

    def _serve(self, connection: Connection, *, flush: bool = False) -> None:
        if not connection.open[self.name] or connection.lives[self.name] != self.life:
            return
        peer = connection.other(self.name)
        sender = self.senders.get(peer)
        if sender is not None:
            while (batch := sender.pull(self.world.now, flush=flush)) is not None:
                connection.send(self.name, batch)
        receiver = self.receivers.get(peer)
        if receiver is not None and self.name in connection.hello:
            ack = receiver.acknowledge(self.log.durable, self.settlement.is_settled)
            if ack is not None:
                connection.send(self.name, ack)

    # What must be true when a publisher is told that its message is safe.

    def _check_ack(self, publisher: Publisher, sequence: int) -> None:
        message = publisher.client, sequence
        if message not in self.on_disk():
            raise Violation(f"{self.name} acknowledges {message}, which is not on its disk")
        for name in self.settlement.waited_for:
            other = self.world.instances[name]
            if message not in other.on_disk() and not other.loss:
                raise Violation(f"{self.name} acknowledges {message}, which {name} does not have")
        faults = self.world.faults
        copies = [instance.path_of(message) for instance in self.world.instances.values()]
        if faults.replace_disk or faults.downgrade or copies.count(set()) > 1:
            return  # what lies behind the next instance need not be waited for: see its docstring
        seen, following = {self.name}, [self]
        while following:
            instance = following.pop()
            if instance is not self and not instance.is_up:
                continue
            passed = instance.path_of(message)
            if passed is None or (passed and instance is self):
                continue  # what came from elsewhere, the one that it came from sees to
            for name in sorted(instance.settlement.waited_for - seen - passed):
                seen.add(name)
                other = self.world.instances[name]
                following.append(other)
                if message not in other.on_disk() and not other.loss:
                    raise Violation(
                        f"{self.name} acknowledges {message}, which {name} does not have, to which "
                        f"{instance.name} replicates"
                    )


class SimulatedRecorder:
    """Appends what comes from other instances."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def last_txid(self) -> int:
        return self._instance.log.last_txid

    def highest(self) -> dict[int, int]:
        return self._instance.log.sequences

    def record(self, run: Columns, source: Any) -> Recorded:
        instance = self._instance
        count = len(run.data)
        if instance.room is not None:
            count = min(count, instance.room)
            instance.room -= count
        first = self.last_txid + 1
        for place in range(count):
            instance.log.append(
                run.topic,
                run.clients[place],
                run.sequences[place],
                run.data[place],
                run.kinds[place],
                run.origin,
                run.source_txids[place],
                client_hash(source.name),
                instance.world.now,
                run.expirations[place],
                run.extras_length,
            )
        if not count:
            return Recorded(0)
        instance.applied(first)
        return Recorded(count, first, self.last_txid)


class Publisher:
    """Publishes, keeps messages until they are acknowledged, and moves when it must."""

    def __init__(self, world: World, name: str, homes: tuple[str, ...], messages: int) -> None:
        self.world = world
        self.name = name
        self.client = client_hash(name)
        self.homes = homes
        self.left = messages
        self.sequence = 0
        self.store: dict[int, bytes] = {}
        self.home: Instance | None = None
        self.life = 0
        world.at(world.random.randrange(0, 100) * MILLISECOND, self._live)

    @property
    def is_done(self) -> bool:
        return not self.left and not self.store

    def _live(self) -> None:
        random = self.world.random
        if (
            self.home is None
            or not self.home.is_up
            or self.home.life != self.life
            or (random.random() < 0.05 and not self.world.is_calm)
        ):
            self._move()
        if self.home is not None and self.left and self.home.is_up:
            for _ in range(min(random.randrange(1, 4), self.left)):
                self._publish(self.home)
        if not self.is_done:
            self.world.at(random.randrange(1, 150) * MILLISECOND, self._live)

    def _move(self) -> None:
        up = [home for home in self.homes if self.world.instances[home].is_up]
        self.home = None
        if up:
            self.home = self.world.instances[self.world.random.choice(up)]
            self.life = self.home.life
            for sequence, body in list(self.store.items()):
                self.home.publish(self, self.client, sequence, body, ORDERS)

    def _publish(self, home: Instance) -> None:
        random = self.world.random
        kind = random.random()
        if kind < 0.15:
            home.publish(self, self.client, 0, b"without a number", ORDERS)
        elif kind < 0.2:
            home.publish(self, self.client, 0, b"of one instance", LOCAL)
        else:
            self.left -= 1
            self.sequence += random.choice((1, 1, 1, 5))
            body = f"{self.name} {self.sequence}".encode()
            self.store[self.sequence] = body
            self.world.published[self.client, self.sequence] = body
            home.publish(self, self.client, self.sequence, body, ORDERS)

    def acknowledged(self, instance: Instance, sequence: int) -> None:
        if instance is self.home and instance.life == self.life:
            for number in [one for one in self.store if one <= sequence]:
                del self.store[number]
                self.world.acked[self.client, number] = instance.name, self.world.now
