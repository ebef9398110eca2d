"""Instances with replication and without sockets: what they send each other a test hands over."""

from __future__ import annotations

from pathlib import Path

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.provision_replication import provision_replication
from server.replication.core import PeerInstance, PositionResponse, ReplicationSender, SenderState
from server.storage.journal import JournalEntry
from tests.engine.support import Core, CorePeer
from tests.replication.batches import received

CONFIGURATION = """
<AMPSConfig>
  <Name>{name}</Name>
  <Group>{name}-group</Group>
  <Transports>
    <Transport>
      <Name>in</Name><Type>amps-replication</Type><InetAddr>localhost:1</InetAddr>
    </Transport>
  </Transports>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  {elements}
</AMPSConfig>
"""


def destination(
    name: str, sync_type: str = "sync", topic: str = "^orders", elements: str = ""
) -> str:
    """A Destination, of the group that members have."""
    return f"""
      <Destination>
        <Name>{name}</Name><Group>{name}-group</Group><SyncType>{sync_type}</SyncType>
        <Topic><Name>{topic}</Name><MessageType>json</MessageType>{elements}</Topic>
        <Transport><InetAddr>localhost:2</InetAddr></Transport>
      </Destination>
    """


def compiled(text: str, directory: Path) -> InstanceSpec:
    """What a configuration says."""
    path = directory / "config.xml"
    path.write_text(text)
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    assert spec is not None, "\n".join(map(str, problems))
    return spec


class Member:
    """An instance that replicates.

    Args:
        directory: has a directory for it.
        name: its name.
        destinations: its Destinations.
        elements: what else its configuration has.
    """

    def __init__(
        self, directory: Path, name: str, destinations: str = "", elements: str = ""
    ) -> None:
        home = directory / name
        home.mkdir(exist_ok=True)
        if destinations:
            destinations = f"<Replication>{destinations}</Replication>"
        text = CONFIGURATION.format(name=name, elements=destinations + elements)
        spec = compiled(text, home)
        self.name = name
        self.directory = home / "journal"
        self.core = Core()
        self.core.record(self.directory, ".*", name)
        provisioned = provision_replication(
            spec, self.core.engine, self.core.transaction_log, lambda: None
        )
        assert provisioned is not None
        self.replication, self._remembering = provisioned

    @property
    def peer(self) -> PeerInstance:
        """As others know it."""
        replication = self.replication
        return PeerInstance(
            self.name, replication.group, replication.log_id, replication.log_start_txid
        )

    def sender(self, name: str) -> ReplicationSender:
        """What sends to a destination."""
        return self.replication.destinations[name].sender

    def client(self, name: str = "publisher") -> CorePeer:
        """Somebody who has logged on."""
        peer = self.core.log_on(name)
        peer.take_frames()
        return peer

    def told(self, peer: CorePeer) -> list[tuple[str | None, str | None]]:
        """The persisted acks that somebody has been sent by now: their commands, and status."""
        self.core.clock.advance(1.1)
        self.core.engine.flush()
        return [
            (header.get("cid"), header["status"])
            for header, _ in peer.take_frames()
            if header["c"] == "ack" and header["a"] == "persisted"
        ]

    def said(self, message_id: str) -> list[dict[str, object]]:
        """What it has written to its log under an id."""
        return [fields for one, fields in self.core.log.entries if one == message_id]

    def entries(self) -> list[JournalEntry]:
        """What is in its log, all of it committed."""
        self.core.commit()
        return list(self.core.transaction_log.journal.entries())

    def store(self) -> None:
        """Let it store what it is to remember, of which something has changed."""
        self.core.clock.advance(1.5)
        self.core.wait_for_helper()

    def close(self) -> None:
        """End it in good order."""
        self._remembering.close()
        self.kill()

    def kill(self) -> None:
        """End it, and store nothing but the log."""
        self.core.transaction_log.close()


def connect(source: Member, target: Member) -> None:
    """Let one instance replicate to another one from now on."""
    sender, receiver = source.sender(target.name), target.replication.receiver_for(source.name)
    begin = sender.begin_link(target.peer)
    for answer in receiver.begin_link(source.peer, begin, target.replication.settled_txid):
        if isinstance(answer, PositionResponse):
            sender.resume(answer)
        else:
            sender.process_dedup_state(answer)
    source.replication.update_settled()


def carry(source: Member, target: Member) -> None:
    """Bring everything that there is to another instance, and its acknowledgement back."""
    sender, receiver = source.sender(target.name), target.replication.receiver_for(source.name)
    if sender.state is SenderState.DISCONNECTED:
        connect(source, target)
    source.core.commit()
    while (batch := sender.next_frame(source.replication.now_us, flush=True)) is not None:
        receiver.receive_batch(received(batch))
    target.core.commit()
    ack = receiver.make_ack(
        target.replication.durable_txid, target.replication.ack_tracker.is_settled
    )
    if ack is not None:
        sender.process_ack(ack)
        source.replication.update_settled()
    for member in (source, target):
        member.core.engine.flush()
