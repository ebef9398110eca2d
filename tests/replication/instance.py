"""An instance of the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from server.replication.core import (
    VERSION,
    Ack,
    AcknowledgementTracker,
    BatchColumns,
    DedupState,
    DedupWindow,
    DedupWindowRecovery,
    Hello,
    HelloRefusal,
    PersistentState,
    PositionRequest,
    PositionResponse,
    RecentEntries,
    RecorderResult,
    ReplicationBatch,
    ReplicationReceiver,
    ReplicationSender,
    Routes,
    SkippedRanges,
    TopicRoute,
    hops,
    pack,
    peer_of,
    refusal,
    unpack,
)
from server.storage.journal import (
    GapRecord,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
    decode_note,
    encode_note,
)
from server.storage.journal.format.layout import BODY_CRC, CLIENT, ORIGIN, SEQUENCE, TXID
from server.util.clock import ElapsedMicroseconds
from tests.replication.basics import MILLISECOND, NOTES, ORDERS
from tests.replication.connection import Connection
from tests.replication.memory import Log, LogReader
from tests.replication.violation import Violation

if TYPE_CHECKING:
    from server.storage.journal.sequence_gaps import SequenceRanges
    from tests.replication.publisher import Publisher
    from tests.replication.simulation import World
    from tests.replication.topologies import Link


class Instance:
    """An instance: the core of replication, and as much around it as it takes."""

    sender_type = ReplicationSender
    receiver_type = ReplicationReceiver
    known_type = DedupWindow

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.group = world.topology.groups.get(name, name)
        self.is_up = False
        self.life = 0
        self.log = Log(name)
        self.remembered: bytes | None = None
        self.room: int | None = None
        self.refuses = 0.0
        self.slowest = world.random.choice((1, 4, 4, 40)) * MILLISECOND  # its disk, for a commit
        self.loss = 0
        self.links = [link for link in world.topology.links if link.source == name]
        self.sources = [link.source for link in world.topology.links if link.destination == name]
        self.streams = {link.destination: link.destination for link in self.links}

    # A life.

    def boot(self) -> None:
        """Come up with what is on the disk."""
        if self.is_up:
            return
        self.is_up = True
        self.life += 1
        log = self.log
        log.crash()
        remembered = PersistentState(log.identity, 0)
        if self.remembered is not None:
            found = unpack(self.remembered)
            if found.log == log.identity and found.txid <= log.durable:
                remembered = found
        self.recent = RecentEntries(1000)
        is_whole = log.first_txid <= max(remembered.txid + 1, log.began)
        recollection = DedupWindowRecovery(remembered, self.recent, is_log_complete=is_whole)
        start = min([remembered.txid, *remembered.acknowledged.values()])
        reader = LogReader(log, max(start, log.first_txid - 1), lambda topic: True)
        while not reader.is_caught_up:
            for run in reader.read_for_forwarding(100).to_entry_range().batches():
                recollection.replay_batch(run)
        self.known = recollection.dedup_window
        self.known.highest_sequence = lambda client: self.log.sequences.get(client, 0)
        self.known.__class__ = self.known_type
        self.senders = {
            link.destination: self._sender(link, remembered.acknowledged.get(link.destination, 0))
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
                log.last_txid,
                max_units=self.world.most_units,
            )
            for source in self.sources
        }
        self.settlement = AcknowledgementTracker(
            self.senders,
            self._sync_destinations,
            log.durable,
            ElapsedMicroseconds(self.world.now),
        )
        self.released = 0  # up to here, acknowledged while not everybody was waited for
        self.is_committing = False
        self.is_awake = False
        self.snapshot: tuple[int, bytes] | None = None
        self.waiting: list[tuple[int, Publisher, int]] = []
        life = self.life
        self.world.at(20 * MILLISECOND, lambda: self._remember(life))
        for link in self.links:
            self._connect(link.destination, life)

    def _sender(self, link: Link, acknowledged: int) -> ReplicationSender:
        return self.sender_type(
            self.log,
            f"{self.log.identity}/{self.streams[link.destination]}",
            Routes([TopicRoute("json", "orders")], link.pass_through),
            acknowledged,
            max_in_flight_bytes=400,
        )

    @property
    def _sync_destinations(self) -> frozenset[str]:
        return frozenset(link.destination for link in self.links if link.is_sync)

    def change_destinations(self) -> None:
        """Some destinations change, and what is sent to them may count as another stream."""
        for connection in list(self.world.connections):
            if self.name in connection.ends:
                connection.close(self.name)
        before, chances = self.senders, self.world.random
        self.senders = dict(before)
        for link in self.links:
            if chances.random() < 0.7:
                if chances.random() < 0.5:
                    self.streams[link.destination] += "'"
                sender = before[link.destination]
                self.senders[link.destination] = self._sender(link, sender.first_needed_txid - 1)
        now = ElapsedMicroseconds(self.world.now)
        self.settlement.replace_destinations(self.senders, self._sync_destinations, now)
        self.wake()

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
            and self.world.instances[source].senders[self.name].is_resynchronized
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
        self, publisher: Publisher, client: int, sequence: int, body: bytes, topic: JournalTopic
    ) -> None:
        """A publisher's message."""
        if sequence and not self._accepts(client, sequence):
            publisher.failed(self, sequence)
        elif sequence and sequence <= self.log.sequences.get(client, 0):
            self.waiting.append((self.log.last_txid, publisher, sequence))
        else:
            before = self.log.sequences.get(client, 0)
            txid = self.log.append(topic, client, sequence, body, now=self.world.now)
            if sequence:
                if sequence != before + 1:
                    self.known.record_sequences(client, before, (sequence,))
                checksum = self.log.rows[-1][15]
                self.recent.add_batch(
                    client, (sequence,), (checksum,), (txid, txid), topic, JournalOrigin()
                )
                self.waiting.append((txid, publisher, sequence))
            self.applied(txid)
        self.wake()

    def _accepts(self, client: int, sequence: int) -> bool:
        """Whether a number may be recorded, or has been; the log is told of those that are not."""
        missing, highest = self.log.missing, self.log.sequences.get(client, 0)
        if sequence <= highest:
            return not missing.is_missing(client, sequence)
        if missing.is_over_limit(client) or (
            self.refuses and self.world.random.random() < self.refuses
        ):
            missing.add_refused(client, sequence)
            return False
        due = missing.refused_before(client, sequence)
        if due:
            self.note(client, GapRecord(missing=list(due)))
        return True

    def note(self, client: int, note: GapRecord) -> None:
        """Record what publishers have to be told of."""
        log = self.log
        txid = log.append(
            NOTES, client, 0, encode_note(note), JournalEntryKind.MISSING, now=self.world.now
        )
        identity, checksum = log.rows[-1][CLIENT], log.rows[-1][BODY_CRC]
        self.recent.add_batch(identity, (txid,), (checksum,), (txid, txid), NOTES, JournalOrigin())
        self.wake()

    def log_on(self, publisher: Publisher) -> tuple[SequenceRanges, int]:
        """A publisher connects.

        Returns:
            Which of its numbers have failed, and up to where all others are settled.
        """
        log, client = self.log, publisher.client
        log.missing.drop_refused(client)
        watermarks = [
            row[SEQUENCE]
            for row in log.rows
            if row[CLIENT] == client
            and row[TXID] > self.settlement.settled_txid
            and not log.names.origins[row[ORIGIN]].path
        ]
        settled = min([number - 1 for number in watermarks] + [log.sequences.get(client, 0)])
        told = log.missing.missing_up_to(client, settled)
        there = {row[SEQUENCE] for row in log.rows if row[CLIENT] == client}
        there |= {number for one, number in log.removed if one == client}
        for number in publisher.store:
            is_told = any(first <= number <= last for first, last in told)
            if number <= settled and number not in there and not is_told:
                raise Violation(f"{self.name} says it has {client}|{number}|, and does not")
        return told, settled

    def heard(self, client: int, told: SequenceRanges) -> None:
        """A publisher goes on after it has been told what has failed."""
        if self.is_up:
            self.note(client, GapRecord(announced=list(told)))

    def applied(self, first_txid: int) -> None:
        """Entries have been appended, from one on."""

    def published_twice(
        self, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Messages in the log have been published at two instances."""

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
        self.settlement.record_append(log.last_txid, ElapsedMicroseconds(self.world.now))
        if log.durable < log.last_txid and not self.is_committing:
            self.is_committing = True
            end = log.last_txid
            delay = self.world.random.randrange(200, self.slowest)
            self.world.at(delay, lambda: self._committed(life, end))
        for connection in list(self.world.connections):
            if self.name in connection.ends:
                self._serve(connection)
        if self.settlement.update_settled() and self.settlement.downgraded_destinations:
            self.released = self.settlement.settled_txid
        while self.waiting and self.waiting[0][0] <= self.settlement.settled_txid:
            txid, publisher, sequence = self.waiting.pop(0)
            self._check_ack(publisher, sequence, is_released=txid <= self.released)
            publisher.acknowledged(self, sequence)

    def _committed(self, life: int, end: int) -> None:
        if life != self.life:
            return
        self.is_committing = False
        self.log.durable = end
        self.settlement.advance_durable(end)
        if self.snapshot is not None and self.snapshot[0] <= end:
            self.remembered = self.snapshot[1]
            self.snapshot = None
        self.wake()

    def _remember(self, life: int) -> None:
        if life != self.life:
            return
        log = self.log
        if self.snapshot is None:
            remembered = PersistentState(
                log.identity,
                log.last_txid,
                {s: c for s, r in self.receivers.items() if (c := r.cursor) is not None},
                {name: sender.first_needed_txid - 1 for name, sender in self.senders.items()},
                list(self.known.publisher_windows(log.sequences)),
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
                if receiver.is_blocked:
                    self._note(receiver.resume_batch())
            self.wake()

    def mend(self, log: Log, txid: int) -> None:
        """An entry of a log can be read again."""
        if log.damaged.pop(txid, None) is not None and self.is_up and log is self.log:
            for sender in self.senders.values():
                sender.retry_damaged(txid)
            self.wake()

    def give_up(self, txid: int) -> None:
        """Nobody has what cannot be read, for all that is known."""
        self.log.lost.add(txid)
        if self.is_up:
            for sender in self.senders.values():
                sender.retry_damaged()
            self.wake()

    def remove_journals(self) -> None:
        """Remove what nobody needs."""
        if self.is_up:
            needed = [sender.first_needed_txid for sender in self.senders.values()]
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
        return Hello(
            VERSION, self.name, self.group, self.log.identity, self.log.began, nonce=self.life
        )

    def receive(self, connection: Connection, frame: Any) -> None:
        """What has come over a link."""
        peer = connection.other(self.name)
        match frame:
            case Hello():
                self._meet(connection, frame)
            case PositionRequest():
                for answer in self.receivers[peer].begin_link(
                    peer_of(connection.hello[self.name]), frame, self.settlement.settled_txid
                ):
                    connection.send(self.name, answer)
            case PositionResponse():
                self.senders[peer].resume(frame)
            case DedupState():
                self.senders[peer].process_dedup_state(frame)
            case Ack():
                self.senders[peer].process_ack(frame)
            case SkippedRanges():
                if self.receivers[peer].is_blocked:
                    connection.close(self.name)
                    return
                self.receivers[peer].record_skipped(frame)
            case ReplicationBatch():
                receiver = self.receivers[peer]
                if receiver.is_blocked:
                    # Nothing is read from a link meanwhile; here it is as if it were cut.
                    connection.close(self.name)
                    return
                self.check_batch(frame, peer)
                self._note(receiver.receive_batch(frame))
            case HelloRefusal(reason):
                raise Violation(reason)
        self.wake()

    def _meet(self, connection: Connection, hello: Hello) -> None:
        peer = hello.instance
        reason = refusal(self.hello(), hello)
        if reason is not None:
            raise Violation(reason)
        connection.hello[self.name] = hello
        if peer in self.receivers:
            self.receivers[peer].end_link()
        if peer in self.senders:
            connection.send(self.name, self.senders[peer].begin_link(peer_of(hello)))

    def _note(self, taken: Any) -> None:
        for conflict in taken.conflicts:
            self.world.conflicts.add((conflict.client, conflict.sequence))

    def check_batch(self, batch: ReplicationBatch, peer: str) -> None:
        """See that nothing comes back to where it has been."""
        for name in batch.columns.used_properties().values() if batch.columns is not None else ():
            is_back = any(hop.name == self.name for hop in hops(name.origin.path))
            if is_back and not self.world.disk_losses:
                raise Violation(f"{peer} sent to {self.name} what came from there")
            if name.topic not in (ORDERS, NOTES):
                raise Violation(f"{peer} sent {name.topic}")

    def disconnected(self, connection: Connection) -> None:
        peer = connection.other(self.name)
        current = self.world.find(self.name, peer)
        if current is not None and current is not connection and current.open[self.name]:
            return
        if peer in self.senders:
            self.senders[peer].end_link()
        if peer in self.receivers:
            self.receivers[peer].end_link()

    def _serve(self, connection: Connection, *, flush: bool = False) -> None:
        if not connection.open[self.name] or connection.lives[self.name] != self.life:
            return
        peer = connection.other(self.name)
        sender = self.senders.get(peer)
        if sender is not None:
            while (batch := sender.next_frame(self.world.now, flush=flush)) is not None:
                connection.send(self.name, batch)
        receiver = self.receivers.get(peer)
        if receiver is not None and self.name in connection.hello:
            ack = receiver.make_ack(self.log.durable, self.settlement.is_settled)
            if ack is not None:
                connection.send(self.name, ack)

    # What must be true when a publisher is told that its message is safe.

    def _check_ack(self, publisher: Publisher, sequence: int, *, is_released: bool) -> None:
        message = publisher.client, sequence
        if message not in self.on_disk():
            raise Violation(f"{self.name} acknowledges {message}, which is not on its disk")
        if is_released:
            return  # once and for all, by a downgrade, whoever is waited for by now
        for name in self.settlement.awaited_destinations:
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
            for name in sorted(instance.settlement.awaited_destinations - seen - passed):
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

    def highest_sequences(self) -> dict[int, int]:
        return self._instance.log.sequences

    def report_duplicates(
        self, topic: JournalTopic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        self._instance.published_twice(marks, publishers)

    def record(self, run: BatchColumns, source: Any) -> RecorderResult:
        instance = self._instance
        first = self.last_txid + 1
        recorded = instance.log.take(run, source, instance.room, instance.world.now)
        if instance.room is not None:
            instance.room -= recorded.processed_count
        if recorded.processed_count:
            instance.applied(first)
        for place in range(recorded.processed_count):
            if run.kinds[place] == JournalEntryKind.MISSING:
                self._take_away(run.source_txids[place], decode_note(run.data[place]))
        return recorded

    def _take_away(self, client: int, note: GapRecord) -> None:
        """Of what another instance lacks, this one may have some."""
        there = [
            pair
            for one in note.missing
            for pair in self._instance.known.received_ranges(client, *one)
        ]
        if there:
            self._instance.note(client, GapRecord(present_here=there))

    def record_lost_sequences(self, client: int, sequences: SequenceRanges) -> bool:
        instance = self._instance
        if instance.room == 0:
            return False
        lacking = [
            pair for one in sequences for pair in instance.known.missing_ranges(client, *one)
        ]
        if lacking:
            instance.note(client, GapRecord(missing=lacking))
        return True
