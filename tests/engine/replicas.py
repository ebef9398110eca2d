"""Engines that replicate to each other without links: frames are handed over by the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from server.app.wiring.provision_replication import JournalSource
from server.replication.apply.applier import ReplicationApplier
from server.replication.apply.permissions import ApplyPermissions
from server.replication.core import (
    BatchCounts,
    DedupWindow,
    PeerInstance,
    PositionResponse,
    RecentEntries,
    ReplicationBatch,
    ReplicationFrameReader,
    ReplicationReceiver,
    ReplicationSender,
    Routes,
    TopicRoute,
    encode,
)
from server.storage.journal import Disk, JournalEntry
from server.topics.durable_watermark import DurableWatermarks
from server.topics.publish_tracker import PublishTracker
from tests.engine.support import Core, CorePeer


class Replica:
    """An engine that takes part in replication.

    Args:
        name: of the instance, and its group.
        directory: of its journal.
        pattern: the topics that it records.
        prepare: gives its engine what it needs before anything is recorded.
        core: its engine; None for one of its own.
        disk: of its journal.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        pattern: str = ".*",
        prepare: Callable[[Core], None] = lambda _: None,
        core: Core | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.name = name
        self.core = core or Core()
        self.core.record(directory / name, pattern, name, disk)
        prepare(self.core)
        self.journal = self.core.transaction_log.journal
        self.known = DedupWindow(self.journal.last_sequence)
        self.recent = RecentEntries()
        log = self.core.transaction_log
        log.publish_tracker = PublishTracker(
            self.known, self.recent, DurableWatermarks(), log.settled_txid, log.generated_identity
        )
        self.incoming = ReplicationApplier(
            self.core.engine.topics,
            self.core.types,
            self.core.transaction_log,
            self.known,
            ApplyPermissions(),
            self.core.clock,
            self.core.log,
        )

    @property
    def peer(self) -> PeerInstance:
        """As others know it."""
        return PeerInstance(self.name, self.name, f"{self.name}/1", self.journal.first_txid)

    def client(self, name: str) -> CorePeer:
        """Somebody who has logged on."""
        return self.core.log_on(name)

    def entries(self) -> list[JournalEntry]:
        """What is in its log, all of it committed."""
        self.core.commit()
        return list(self.journal.entries())

    def said(self) -> list[str]:
        """The ids of what it has written to its log about what has come."""
        return [one for one, _ in self.core.log.entries if one.startswith("1D-")]

    def close(self) -> None:
        """End it."""
        self.core.transaction_log.close()


class Road:
    """One direction between two replicas.

    Args:
        source: where it leads from.
        destination: where it leads to.
    """

    def __init__(self, source: Replica, destination: Replica) -> None:
        self._source, self._destination = source, destination
        routes = [TopicRoute(message_type, ".*") for message_type in source.core.types]
        stream = f"{source.name} to {destination.name}"
        log = JournalSource(source.journal, lambda _: True)
        self.sender = ReplicationSender(log, stream, Routes(routes, [".*"]))
        self.receiver = ReplicationReceiver(
            destination.name,
            destination.journal.first_txid,
            destination.known,
            destination.recent,
            destination.incoming,
        )
        begin = self.sender.begin_link(destination.peer)
        settled = destination.journal.durable_txid
        for answer in self.receiver.begin_link(source.peer, begin, settled):
            if isinstance(answer, PositionResponse):
                self.sender.resume(answer)
            else:
                self.sender.process_dedup_state(answer)

    def carry(self) -> BatchCounts:
        """Bring everything that there is, unless it is held up; what came with the last batch."""
        self._source.core.commit()
        clock = self._source.core.clock
        reader = ReplicationFrameReader(1 << 30)
        taken = BatchCounts()
        while not self.receiver.is_blocked:
            batch = self.sender.next_frame(int(clock.now() * 1e6), flush=True)
            if batch is None:
                break
            reader.feed(encode(batch))
            frame = reader.next_frame()
            assert isinstance(frame, ReplicationBatch)
            taken = self.receiver.receive_batch(frame)
            self.settle()
        return taken

    def settle(self) -> None:
        """Let the destination commit, deliver and acknowledge."""
        core = self._destination.core
        core.commit()
        ack = self.receiver.make_ack(self._destination.journal.durable_txid, lambda *_: True)
        if ack is not None:
            self.sender.process_ack(ack)
