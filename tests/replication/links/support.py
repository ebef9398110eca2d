"""Instances with links in one process: logs in memory, pipes for connections, time that is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from msgspec import structs

from amperage.wire.bookmarks import client_hash
from config_schema.problems import Location
from config_schema.selection import TopicPattern
from config_schema.spec import (
    DestinationSpec,
    KnownBy,
    OutgoingTransportSpec,
    ReplicatedTopicSpec,
)
from config_schema.spec.common import InetAddr
from config_schema.topology import InstanceDescription
from config_schema.topology.description import (
    Destination,
    PeerAddress,
    ReplicatedTopic,
    TransactionLogTopic,
)
from server.engine.scheduler import Scheduler
from server.replication.apply.permissions import ApplyPermissions
from server.replication.core import (
    BatchColumns,
    DedupWindow,
    Hello,
    RecentEntries,
    RecorderResult,
    ReplicationSender,
    Routes,
    TopicRoute,
)
from server.replication.links.link import ReplicationLink
from server.replication.links.link_events import LinkDirection, LinkEvent
from server.replication.links.registry import LinkRegistry
from server.replication.links.replication_state import (
    RecoveredState,
    ReplicationDestination,
    ReplicationState,
)
from server.storage.journal import JournalTopic
from server.topics.durable_watermark import DurableWatermarks
from server.topics.subscriptions.delivery.outbox import Outboxes
from server.topics.transaction_log import TransactionLog
from tests.engine.support import RecordingLog, SimulatedClock
from tests.replication.memory import Log

HERE = Location("config.xml", 1)
ORDERS = JournalTopic("json", "orders")


def destination(
    name: str,
    *,
    group: str = "",
    sync: bool = True,
    port: int | None = 1,
    interval: float = 0.0,
    excluded: Sequence[str] = (),
    compression: str | None = None,
    known_by: KnownBy = "group",
) -> DestinationSpec:
    """A Destination for the topic `orders`; without a port it waits for the other instance."""
    at = () if port is None else (InetAddr("localhost", port, "any", HERE),)
    return DestinationSpec(
        name=name,
        group=group or name,
        sync_type="sync" if sync else "async",
        pass_through=(),
        topics=(ReplicatedTopicSpec("orders", "json", None, frozenset(excluded), HERE),),
        transports=(OutgoingTransportSpec("out", "amps-replication", at, None, None, HERE),),
        compression=compression,
        ack_conflation_interval=int(interval * 1e9),
        location=HERE,
        known_by=known_by,
    )


class OpenGate:
    """A transport that lets everybody in; see `LinkAdmission`.

    Args:
        admit: says why an instance is not let in, by user and password.
        lack: why no destination may be served over the connection.
        topics: the topics that may be replicated; None for all.
        is_unverified_user: see `LinkAdmission`.

    Attributes:
        refused: what has been written into the audit trail.
    """

    def __init__(
        self,
        admit: Callable[[str, str], str | None] = lambda _user, _password: None,
        lack: str | None = None,
        topics: Collection[str] | None = None,
        *,
        is_unverified_user: bool = False,
    ) -> None:
        self.is_verified = False
        self.is_unverified_user = is_unverified_user
        self.refused: list[tuple[str, str, str]] = []
        self._admit = admit
        self._lack = lack
        self._topics = topics

    def admit(self, hello: Hello) -> str | None:
        return self._admit(hello.user, hello.password)

    def check_topic(self, topic: JournalTopic) -> str | None:
        return None if self.may_replicate(topic) else f"{topic.name} is not for it"

    def may_replicate(self, topic: JournalTopic) -> bool:
        return self._topics is None or topic.name in self._topics

    def check_destination(self, _: DestinationSpec) -> str | None:
        return self._lack

    def destination_warning(self, _: DestinationSpec) -> str | None:
        return None

    def audit_refusal(self, action: str, resource: str, reason: str) -> None:
        self.refused.append((action, resource, reason))


class Pipe:
    """One end of a connection: a `LinkConnection`, whose other end is another one, or a test.

    Attributes:
        sent: what was sent and has not arrived.
        is_open: whether this end has not been closed.
        is_reading: whether it is read from.
        is_ready: see `LinkConnection`.
        owner: the instance that has this end.
    """

    def __init__(self, address: str, owner: Instance | None = None) -> None:
        self.address = address
        self.owner = owner
        self.sent = bytearray()
        self.is_open = True
        self.is_reading = True
        self.is_ready = True
        self.link: ReplicationLink | None = None
        self.other: Pipe | None = None
        self.ends_told = False

    def send(self, *data: bytes) -> None:
        if self.is_open:
            self.sent += b"".join(data)

    def pause(self) -> None:
        self.is_reading = False

    def resume(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_open = False

    def take(self, size: int = 1 << 20) -> bytes | None:
        """What arrives next of what was sent; nothing for the end, None if nothing does."""
        assert self.other is not None
        if self.sent and self.other.is_reading:
            data = bytes(self.sent[:size])
            del self.sent[:size]
            return data
        if not self.is_open and not self.sent and not self.ends_told:
            self.ends_told = True
            return b""
        return None

    def deliver(self, data: bytes) -> None:
        """Let something arrive."""
        other = self.other
        assert other is not None
        if not data:
            other.is_open = False
            if other.link is not None:
                other.link.connection_lost()
        elif other.link is not None and other.is_open:
            other.link.feed(data)

    def arrive(self, size: int = 1 << 20) -> None:
        """Let something of what was sent arrive."""
        data = self.take(size)
        if data is not None:
            self.deliver(data)


class Instance:
    """An instance: its log, what it has of replication, and its links.

    Attributes:
        room: how many entries the log takes before it takes no more; None for all.
        elapsed: tells how long its work takes.
        events: what has happened to links.
    """

    def __init__(
        self,
        name: str,
        destinations: Sequence[DestinationSpec] = (),
        *,
        group: str = "",
        listens: int | None = 1,
        clock: SimulatedClock | None = None,
        nonce: int = 1,
        log: Log | None = None,
        logged: Sequence[str] = ("orders",),
    ) -> None:
        self.name = name
        self.clock = clock or SimulatedClock()
        self.entries = log or Log(name)
        self.log = RecordingLog()
        self.room: int | None = None
        self.events: list[tuple[LinkEvent, LinkDirection]] = []
        own = {one.name: self._own(one) for one in destinations}
        self.description = InstanceDescription(
            name=name,
            group=group or name,
            location=HERE,
            listens=None if listens is None else PeerAddress("localhost", listens, False, HERE),
            log_location=HERE,
            logged=tuple(
                TransactionLogTopic(TopicPattern(topic, "json", is_expression=False), HERE)
                for topic in logged
            ),
            stored=(),
            destinations=tuple(map(_described, destinations)),
            downgrades=False,
        )
        known = DedupWindow(lambda client: self.entries.sequences.get(client, 0))
        recollected = RecoveredState(
            self.entries.identity,
            self.entries.began,
            known,
            RecentEntries(),
            DurableWatermarks(),
            {},
            {},
            {},
        )
        self.replication = ReplicationState(
            self.description,
            nonce,
            recollected,
            own,
            0,
            self,
            ApplyPermissions(),
            cast(TransactionLog, self),
            self.clock,
            lambda: self.clock.time,
            self.log,
        )
        outboxes = Outboxes(self.clock.now)
        self.elapsed: Callable[[], float] = self.clock.now
        self.turns = Scheduler(self.clock, self._elapsed, outboxes, self.log, self._elapsed)
        self.links = LinkRegistry(self.replication, self.turns, self.clock, self.log)
        for event in LinkEvent:
            self.replication.events.watch(event, self._watcher(event))

    def _elapsed(self) -> float:
        return self.elapsed()

    def _watcher(self, event: LinkEvent) -> Callable[[LinkDirection], None]:
        return lambda way: self.events.append((event, way))

    def _own(self, spec: DestinationSpec) -> ReplicationDestination:
        routes = Routes([TopicRoute("json", "orders")], spec.pass_through)
        stream = f"{self.entries.identity}>{spec.name}"
        sender = ReplicationSender(self.entries, stream, routes, self.entries.first_txid - 1)
        return ReplicationDestination(spec, sender, LinkDirection("", "", "", "", ""))

    # What Replication asks of the transaction log.

    @property
    def durable_txid(self) -> int:
        return self.entries.durable

    def notify_settled(self) -> None:
        """See `Entries`: nobody is told here."""

    # What receivers ask of the recorder.

    def instance_runs(self) -> Sequence[tuple[int, int]]:
        """Its log loses nothing, and has had one run."""
        return ()

    @property
    def last_txid(self) -> int:
        return self.entries.last_txid

    def highest_sequences(self) -> dict[int, int]:
        return dict(self.entries.sequences)

    def record(self, run: BatchColumns, source: Any) -> RecorderResult:
        recorded = self.entries.take(run, source, self.room)
        if self.room is not None:
            self.room -= recorded.processed_count
        return recorded

    def report_duplicates(
        self, topic: JournalTopic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """No queue is concerned."""

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        return True

    # What a test does.

    def replace_destinations(self, *destinations: DestinationSpec) -> None:
        """Have other destinations, as after a reload of the configuration."""
        described = tuple(map(_described, destinations))
        self.description = structs.replace(self.description, destinations=described)
        self.links.use_description(self.description)
        self.replication.replace_destinations({one.name: self._own(one) for one in destinations})

    def publish(self, count: int, client: str = "publisher", size: int = 10) -> None:
        """Publish messages, and commit them."""
        identity = client_hash(client)
        for _ in range(count):
            number = self.entries.sequences.get(identity, 0) + 1
            body = f'{{"n": {number}}}'.ljust(size).encode()
            self.entries.append(ORDERS, identity, number, body)
        self.commit()

    def commit(self) -> None:
        """Have everything on stable storage."""
        self.entries.durable = self.entries.last_txid
        self.replication.process_commit()

    def bodies(self) -> list[bytes]:
        """What is in the log."""
        return list(self.entries.data)

    def logs(self, message: str) -> list[dict[str, object]]:
        """The entries with an id."""
        return [fields for one, fields in self.log.entries if one == message]

    def sender(self, name: str) -> ReplicationSender:
        """What sends to a destination."""
        return self.replication.destinations[name].sender


def _described(spec: DestinationSpec) -> Destination:
    return Destination(
        name=spec.name,
        group=spec.group,
        is_sync=spec.sync_type == "sync",
        pass_through=spec.pass_through,
        topics=tuple(
            ReplicatedTopic(
                TopicPattern(topic.name, topic.message_type, is_expression=False),
                topic.filter,
                topic.exclude_validation,
                topic.location,
            )
            for topic in spec.topics
        ),
        addresses=tuple(
            PeerAddress(address.host, address.port, False, HERE)
            for transport in spec.transports
            for address in transport.addresses
        ),
        location=spec.location,
        known_by=spec.known_by,
    )


class Network:
    """The connections between instances, and the time of all of them."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.pipes: list[Pipe] = []
        self.outcomes: list[bool] = []
        self.instances: list[Instance] = []

    def instance(self, name: str, *destinations: DestinationSpec, **options: Any) -> Instance:
        """An instance more."""
        instance = Instance(name, destinations, clock=self.clock, **options)
        self.instances.append(instance)
        return instance

    def connect(
        self,
        source: Instance,
        name: str,
        target: Instance,
        *,
        admit: Callable[[str, str], str | None] = lambda _user, _password: None,
        falls_short: str | None = None,
        gate: OpenGate | None = None,
        credentials: tuple[str, str] = ("", ""),
    ) -> tuple[Pipe, Pipe]:
        """Connect an instance, for one of its destinations, to another one."""
        ours, theirs = Pipe("localhost:1", source), Pipe("localhost:50000", target)
        ours.other, theirs.other = theirs, ours
        gate = gate or OpenGate(admit, falls_short)
        theirs.link = target.links.accept(theirs, "replication", gate)
        ours.link = source.links.connect(ours, "out", name, credentials, self.outcomes.append)
        self.pipes += [ours, theirs]
        return ours, theirs

    def settle(self, *, commit: bool = True, size: int = 1 << 20) -> None:
        """Let everything happen that happens soon; what is sent crosses on its way."""
        idle = 0
        while idle < 5:
            moved = [(pipe, data) for pipe in self.pipes if (data := pipe.take(size)) is not None]
            for pipe, data in moved:
                pipe.deliver(data)
            self.clock.advance(0.001)
            for instance in self.instances:
                if commit and instance.entries.durable < instance.entries.last_txid:
                    instance.commit()
            idle = 0 if moved else idle + 1

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        """Let time go by."""
        end = self.clock.time + seconds
        while self.clock.time < end:
            self.clock.advance(step)
            self.settle()
