"""From one journal on disk to another: what is read is what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from amperage.wire.bookmarks import client_hash
from server.app.wiring.provision_replication import JournalSource
from server.replication.core import (
    BatchColumns,
    DedupWindow,
    Hello,
    PeerInstance,
    PositionResponse,
    RecentEntries,
    RecorderResult,
    ReplicationBatch,
    ReplicationFrameReader,
    ReplicationReceiver,
    ReplicationSender,
    Routes,
    TopicRoute,
    encode,
    peer_of,
)
from server.storage.journal import Journal, JournalEntryKind, JournalTopic
from server.storage.journal.format.layout import unpack_extras
from tests.storage.journal.support import opened

BODY = b"x" * 3000


class Destination:
    """A journal, to which what comes is appended."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def last_txid(self) -> int:
        return self._journal.last_txid

    def report_duplicates(
        self, topic: JournalTopic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """No queue is concerned."""

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        return True

    def highest_sequences(self) -> dict[int, int]:
        return {client: number for client, (number, _) in self._journal.sequences.items()}

    def record(self, run: BatchColumns, source: PeerInstance) -> RecorderResult:
        journal, txids = self._journal, []
        for place, data in enumerate(run.data):
            named, came, extras_length = run.properties_of(place)
            topic = journal.topic_handle(named.message_type, named.name)
            origin = journal.origin_handle(came.auth_id, came.path)
            body = data[: len(data) - extras_length]
            extras = data[len(body) :]
            correlation_id, given_key = unpack_extras(extras) if extras else (b"", b"")
            txid = journal.append(
                topic,
                run.clients[place],
                run.sequences[place],
                body,
                run.kinds[place],
                run.sow_keys[place],
                run.expirations[place],
                origin,
                correlation_id,
                given_key,
                run.source_txids[place],
                client_hash(source.name),
            )
            txids.append(txid)
        return RecorderResult(len(txids), txids[0], txids[-1])


def test_a_log_of_several_files_is_replicated_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "a", instance="A") as one, opened(tmp_path / "b", instance="B") as two:
        source, destination = one.journal, two.journal
        orders, other = source.topic_handle("json", "orders"), source.topic_handle("json", "other")
        user = source.origin_handle("bob")
        for number in range(1, 1500):
            source.append(orders, 7, number, BODY, sow_key=number, origin=user)
            source.append(orders, 8, 0, b"{}", correlation_id=b"c", given_key=b"k")
            source.append(other, 7, 0, b"{}")
        source.append(orders, 7, 1500, b"[]", JournalEntryKind.SOW_DELETE)
        assert source.commit()
        assert len(source.files) > 1

        recorder = Destination(destination)
        receiver = ReplicationReceiver(
            "B", 1, DedupWindow(destination.last_sequence), RecentEntries(), recorder
        )
        log = JournalSource(source, lambda _: True)
        sender = ReplicationSender(log, "A>B", Routes([TopicRoute("json", "orders")]))
        begin = sender.begin_link(peer_of(Hello(2, "B", "B", "B/1", 1)))
        for answer in receiver.begin_link(PeerInstance("A", "A", "A/1", 1), begin, 0):
            if isinstance(answer, PositionResponse):
                sender.resume(answer)
            else:
                sender.process_dedup_state(answer)
        reader = ReplicationFrameReader(1 << 26)
        while (batch := sender.next_frame(one.clock.now)) is not None:
            reader.feed(encode(batch, compress=True))
            frame = reader.next_frame()
            assert isinstance(frame, ReplicationBatch)
            receiver.receive_batch(frame)
            assert destination.commit()
            ack = receiver.make_ack(destination.durable_txid, lambda *_: True)
            assert ack is not None
            sender.process_ack(ack)

        sent = [entry for entry in source.entries() if entry.topic.name == "orders"]
        came = list(destination.entries())
        assert len(sent) == len(came) == 2 * 1499 + 1
        for entry, copy in zip(sent, came, strict=True):
            assert copy.bookmark == entry.bookmark
            assert copy.body == entry.body
            assert (copy.kind, copy.sow_key, copy.correlation_id, copy.given_key) == (
                entry.kind,
                entry.sow_key,
                entry.correlation_id,
                entry.given_key,
            )
            assert copy.source == client_hash("A")
            assert copy.source_txid == (entry.txid if entry.client == 7 else 8)
            assert (copy.origin.auth_id, copy.origin.path) == (entry.origin.auth_id, "A")
        assert sender.is_resynchronized
        assert sender.settled_txid == source.last_txid
