"""One source and one destination: what goes, what is dropped, what is told, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from server.replication.core import (
    Ack,
    BatchColumns,
    DedupState,
    DedupWindow,
    DuplicateConflict,
    EntryRoutingKey,
    Hop,
    PeerInstance,
    PositionRequest,
    PositionResponse,
    ReceiveCursor,
    RecentEntries,
    RecorderResult,
    ReplicationBatch,
    ReplicationProtocolError,
    ReplicationReceiver,
    ReplicationSender,
    Routes,
    SenderState,
    SkippedRanges,
    TopicRoute,
    append_hop,
)
from server.replication.core.ack_order import lane_of
from server.storage.journal import JournalEntryKind, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import pack_extras
from server.storage.journal.publisher_table import server_made_identity
from tests.replication.batches import received
from tests.replication.memory import Log

ORDERS, OTHER = JournalTopic("json", "orders"), JournalTopic("json", "other")
ALL = Routes([TopicRoute("json", "orders")], [".*"])
SECOND = 1_000_000
PUBLISHED = [EntryRoutingKey(ORDERS, "")]


class End:
    """What an instance has of what comes from the other one."""

    def __init__(self, name: str, began: int = 500) -> None:
        self.name = name
        self.log = Log(name, began)
        self.known = DedupWindow(lambda client: self.log.sequences.get(client, 0))
        self.recent = RecentEntries()
        self.room = 1 << 30
        self.refuses = False
        self.missing: list[tuple[int, int, int]] = []
        self.receiver = self.new_receiver()

    def new_receiver(self, cursor: ReceiveCursor | None = None) -> ReplicationReceiver:
        self.receiver = ReplicationReceiver(
            self.name, self.log.began, self.known, self.recent, self, cursor
        )
        return self.receiver

    @property
    def peer(self) -> PeerInstance:
        return PeerInstance(self.name, self.name, self.log.identity, self.log.began)

    @property
    def last_txid(self) -> int:
        return self.log.last_txid

    def highest_sequences(self) -> dict[int, int]:
        return self.log.sequences

    def record(self, run: BatchColumns, source: PeerInstance) -> RecorderResult:
        if self.refuses:
            return RecorderResult(len(run.data))
        recorded = self.log.take(run, source, self.room)
        self.room -= recorded.processed_count
        return recorded

    def report_duplicates(
        self, topic: JournalTopic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """No queue is concerned."""

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        self.missing += ((client, *pair) for pair in sequences)
        return True

    def has(self) -> list[tuple[int, int]]:
        return [(row[2], row[3]) for row in self.log.rows]


def settled(*_: object) -> bool:
    return True


class Pair:
    """A source called A, and a destination called B."""

    def __init__(self, routes: Routes = ALL, most_under_way: int = 1 << 20) -> None:
        self.log = Log("A")
        self.destination = End("B")
        self.sender = ReplicationSender(self.log, "A>B", routes, max_in_flight_bytes=most_under_way)

    @property
    def receiver(self) -> ReplicationReceiver:
        return self.destination.receiver

    def publish(self, *numbers: int, body: bytes = b"{}", **more: Any) -> None:
        for number in numbers:
            self.log.append(more.pop("topic", ORDERS), 7, number, body, **more)
        self.log.durable = self.log.last_txid

    def connect(self) -> Any:
        begin = self.sender.begin_link(self.destination.peer)
        resumed = None
        source, settled = (
            PeerInstance("A", "A", self.log.identity, 1000),
            self.destination.last_txid,
        )
        for frame in self.receiver.begin_link(source, begin, settled):
            if isinstance(frame, PositionResponse):
                resumed = self.sender.resume(frame)
            else:
                resumed = self.sender.process_dedup_state(frame)
        return resumed

    def pull(self, now: int = 0, *, flush: bool = False) -> ReplicationBatch | None:
        """What is sent next, as it comes."""
        sent = self.sender.next_frame(now, flush=flush)
        return None if sent is None else received(sent)

    def go(self, now: int = 0) -> list[ReplicationBatch]:
        """All that can be sent is, and is acknowledged."""
        batches = []
        while (batch := self.pull(now, flush=True)) is not None:
            batches.append(batch)
            self.receiver.receive_batch(batch)
            self.destination.log.durable = self.destination.last_txid
            ack = self.receiver.make_ack(self.destination.last_txid, settled)
            if ack is not None:
                self.sender.process_ack(ack)
        return batches


def test_a_new_destination_gets_everything_and_says_so() -> None:
    pair = Pair()
    pair.publish(1, 2, 3)
    assert pair.connect().is_by_difference
    assert not pair.sender.is_resynchronized
    pair.go()
    assert pair.destination.has() == [(7, 1), (7, 2), (7, 3)]
    assert pair.sender.is_resynchronized
    assert pair.sender.settled_txid == pair.sender.stored_txid == pair.log.last_txid
    assert pair.receiver.cursor == ReceiveCursor("A>B", pair.log.last_txid)


def test_an_entry_keeps_its_name_its_extras_and_what_is_left_of_its_life() -> None:
    pair = Pair(Routes([TopicRoute("json", ".*")]))
    extras = pack_extras(b"correlation", b"key")
    pair.log.append(
        ORDERS, 7, 3, b"{}" + extras, extras_length=len(extras), origin=JournalOrigin("bob")
    )
    pair.log.append(OTHER, 8, 0, b"{}", expiration=10, now=SECOND)
    pair.log.append(JournalTopic("json", "queue"), 0, 0, b"event", JournalEntryKind.QUEUE_EVENT)
    pair.log.append(OTHER, 8, 0, b"{}", expiration=10, now=-100 * SECOND)
    pair.publish(4, kind=JournalEntryKind.SOW_DELETE)
    pair.connect()
    pair.go(now=5 * SECOND)
    rows = pair.destination.log.rows
    assert pair.destination.has() == [
        (7, 3),
        (server_made_identity(8, "A"), 1001),
        (server_made_identity(0, "A"), 1002),
        (server_made_identity(8, "A"), 1003),
        (7, 4),
    ]
    assert pair.destination.log.data[0] == b"{}" + extras
    assert [row[12] for row in rows] == [0, 6, 0, 1, 0]
    assert [row[4] for row in rows] == [1000, 8, 0, 8, 1004]  # the txid, or who does not number
    assert [row[14] for row in rows] == [
        1,
        1,
        JournalEntryKind.QUEUE_EVENT,
        1,
        JournalEntryKind.SOW_DELETE,
    ]
    assert pair.destination.log.names.origins[rows[0][11]] == JournalOrigin("bob", "A")


def test_after_an_interruption_nothing_is_sent_again() -> None:
    pair = Pair()
    pair.publish(1, 2)
    pair.connect()
    pair.go()
    pair.sender.end_link()
    pair.receiver.end_link()
    pair.publish(3)
    assert not pair.connect().is_by_difference
    assert [batch.entry_count for batch in pair.go()] == [1]


def test_a_batch_that_is_lost_with_the_connection_is_sent_again() -> None:
    pair = Pair()
    pair.connect()
    pair.publish(1, 2)
    assert pair.sender.next_frame(0) is not None
    pair.sender.end_link()
    assert not pair.sender.has_entries(1000, PUBLISHED)
    pair.connect()
    pair.go()
    assert pair.destination.has() == [(7, 1), (7, 2)]


def test_a_destination_without_a_cursor_gets_the_difference() -> None:
    pair = Pair()
    pair.publish(*range(1, 100))
    pair.connect()
    pair.go()
    pair.log.append(ORDERS, 9, 5, b"of another one")
    pair.publish(100)
    pair.destination.new_receiver()
    assert pair.connect().is_by_difference
    assert sum(batch.entry_count for batch in pair.go()) == 2
    assert pair.sender.is_resynchronized


def test_what_the_destination_knows_and_has_not_stored_is_not_acknowledged() -> None:
    pair = Pair()
    pair.publish(1)
    pair.destination.log.append(ORDERS, 7, 1, b"{}", origin=JournalOrigin("", "C"))
    pair.connect()
    batch = pair.pull()
    assert batch is not None
    assert not batch.entry_count
    pair.receiver.receive_batch(batch)
    assert pair.receiver.make_ack(pair.destination.log.durable, settled) == Ack(999)
    assert not pair.sender.has_entries(1000, PUBLISHED)


def test_another_log_of_the_same_name_is_another_stream() -> None:
    pair = Pair()
    pair.publish(1, 2, 3)
    pair.connect()
    pair.go()
    pair.log = Log("A")  # its numbers are those of the old one
    pair.sender = ReplicationSender(pair.log, "A'>B", ALL)
    pair.publish(*range(4, 10))
    assert pair.connect().is_by_difference
    pair.go()
    assert pair.destination.has() == [(7, number) for number in range(1, 10)]


def test_a_log_that_ends_before_the_cursor_is_gone_through_again() -> None:
    pair = Pair()
    pair.publish(4, 5)
    pair.destination.new_receiver(ReceiveCursor("A>B", 5000))
    assert pair.connect().is_by_difference
    pair.go()
    assert pair.destination.has() == [(7, 4), (7, 5)]


def test_what_has_been_removed_from_the_log_is_told() -> None:
    pair = Pair()
    pair.publish(*range(1, 10))
    pair.log.remove_before(1005)
    pair.destination.new_receiver(ReceiveCursor("A>B", 1001))
    assert pair.connect() == (1004, False, (1002, 1004))
    pair.go()
    assert pair.destination.has() == [(7, number) for number in range(6, 10)]


def test_journals_may_be_removed_while_a_destination_says_where_it_is() -> None:
    pair = Pair()
    pair.publish(*range(1, 10))
    pair.destination.new_receiver(ReceiveCursor("A>B", 1001))
    begin = pair.sender.begin_link(pair.destination.peer)
    (resume,) = pair.receiver.begin_link(PeerInstance("A", "A", "A/1000", 1000), begin, 0)
    assert isinstance(resume, PositionResponse)
    pair.log.remove_before(1005)
    assert pair.sender.resume(resume) == (1001, False, (1002, 1004))
    pair.go()
    assert pair.destination.has() == [(7, number) for number in range(6, 10)]


def test_the_numbers_of_entries_that_nobody_can_read_are_missing() -> None:
    pair = Pair()
    pair.publish(1, 2)
    pair.connect()
    pair.go()
    pair.receiver.record_skipped(SkippedRanges([(1002, 1002)], unknown=1))
    pair.publish(4)
    pair.go()
    assert pair.destination.missing == [(7, 3, 3)]


def test_messages_that_are_refused_are_known_of_every_publisher() -> None:
    pair = Pair()
    for number in (1, 3, 2):
        for client in (7, 8):
            pair.log.append(ORDERS, client, number, b"{}")
    pair.log.durable = 1003
    pair.connect()
    pair.go()
    known = pair.destination.known
    assert known.gaps(7) == known.gaps(8) == ((2, 2),)
    pair.destination.refuses = True
    pair.log.durable = pair.log.last_txid
    pair.go()
    assert known.gaps(7) == known.gaps(8) == ()


def test_a_source_sends_again_only_what_came_from_it() -> None:
    pair = Pair()
    end = pair.destination
    for client, origin in ((8, JournalOrigin()), (7, JournalOrigin("", "A")), (9, JournalOrigin())):
        txid = end.log.append(ORDERS, client, 1, b"{}", origin=origin)
        end.recent.add_batch(client, (1,), (0,), (txid, txid), ORDERS, origin)
    begin = pair.sender.begin_link(end.peer)
    source = PeerInstance("A", "A", pair.log.identity, 1000)
    _, state = end.receiver.begin_link(source, begin, settled_txid=0)
    assert isinstance(state, DedupState)
    missing = {client: list(gaps) for client, _, gaps in state.windows}
    assert missing == {7: [(1, 1)], 8: [], 9: []}


def test_an_instance_that_lost_its_log_gets_back_what_it_had() -> None:
    pair = Pair(Routes([TopicRoute("json", "orders")]))
    identity = server_made_identity(8, "B")
    for client, number, source_txid in ((7, 1, 100), (identity, 101, 8), (identity, 600, 8)):
        pair.log.append(ORDERS, client, number, b"{}", 1, JournalOrigin("", "B"), source_txid, 1)
    pair.log.append(
        ORDERS, 7, 9, b"{}", 1, JournalOrigin("", "C"), 5, 1
    )  # nothing lets that through
    pair.log.durable = pair.log.last_txid
    pair.connect()
    pair.go()
    assert pair.destination.has() == [(7, 1), (identity, 101)]  # its log begins with entry 500
    pair.log.append(ORDERS, 7, 2, b"{}", 1, JournalOrigin("", "B"), 501, 1)
    pair.log.durable = pair.log.last_txid
    assert not sum(batch.entry_count for batch in pair.go()), "what comes from there now stays here"


def test_filters_are_about_messages() -> None:
    def is_wanted(topic: JournalTopic, bodies: Sequence[bytes]) -> Sequence[bool]:
        return [b"yes" in body for body in bodies]

    pair = Pair(Routes([TopicRoute("json", "orders", is_wanted)]))
    pair.publish(1, body=b"yes")
    pair.publish(2, body=b"no")
    pair.publish(3, body=b"no", kind=JournalEntryKind.SOW_DELETE)
    pair.publish(4, body=b"yes", topic=OTHER)
    pair.connect()
    pair.go()
    assert pair.destination.has() == [(7, 1), (7, 3)]
    assert pair.sender.settled_txid == pair.log.last_txid


def test_a_filter_that_fails_loses_nothing() -> None:
    fails = True

    def fail(topic: JournalTopic, bodies: Sequence[bytes]) -> Sequence[bool]:
        if fails:
            raise OSError("not now")
        return [True] * len(bodies)

    pair = Pair(Routes([TopicRoute("json", "orders", fail)]))
    pair.publish(1, 2)
    pair.connect()
    with pytest.raises(OSError, match="not now"):
        pair.sender.next_frame(0)
    fails = False
    pair.go()
    assert pair.destination.has() == [(7, 1), (7, 2)]


def test_two_messages_of_one_name_are_reported() -> None:
    pair = Pair()
    end = pair.destination
    txid = end.log.append(ORDERS, 7, 1, b"what B has")
    end.recent.add_batch(7, (1,), (end.log.rows[0][15],), (txid, txid), ORDERS, JournalOrigin())
    end.new_receiver(ReceiveCursor("A>B", 999))
    pair.publish(1, body=b"what A has")
    pair.publish(2)
    pair.connect()
    batch = pair.pull()
    assert batch is not None
    assert end.receiver.receive_batch(batch) == (1, 1, [DuplicateConflict(7, 1, ORDERS)])


def test_a_log_that_is_full_holds_up_the_source_and_nothing_else() -> None:
    pair = Pair()
    end = pair.destination
    pair.publish(1, 2, 3, 4)
    pair.connect()
    end.room = 2
    batch = pair.pull()
    assert batch is not None
    assert end.receiver.receive_batch(batch).new == 2
    assert end.receiver.is_blocked
    end.log.durable = end.last_txid
    assert end.receiver.make_ack(end.last_txid, settled) == Ack(999)
    assert end.receiver.resume_batch().new == 0
    end.room = 9
    assert end.receiver.resume_batch().new == 2
    assert not end.receiver.is_blocked
    assert end.has() == [(7, number) for number in range(1, 5)]


def test_a_destination_that_never_acknowledges_is_sent_no_more_than_a_window() -> None:
    pair = Pair(most_under_way=10_000)
    pair.connect()
    sent = 0
    for number in range(1, 200):
        pair.publish(number, body=b"x" * 1000)
        batch = pair.pull()
        sent += 0 if batch is None else batch.entry_count
    assert 8 <= sent <= 11
    assert pair.sender.first_needed_txid == 1000


def test_entries_of_one_path_do_not_wait_for_those_of_another() -> None:
    pair = Pair(Routes([TopicRoute("json", ".*")], [".*"]))
    paths = ["", "X", "", "X", "Y,X", ""]
    pair.connect()
    for number, path in enumerate(paths, 1):
        pair.publish(number, origin=JournalOrigin("", path))
        batch = pair.pull()
        assert batch is not None
        pair.receiver.receive_batch(batch)
    pair.destination.log.durable = pair.destination.last_txid
    end = pair.log.last_txid

    def has(path: str) -> int:
        """Up to which entry the destination has those of a path."""
        kinds = [EntryRoutingKey(ORDERS, path)]
        return max(txid for txid in range(end + 1) if pair.sender.has_entries(txid, kinds))

    for held, acked in (
        ((1001, 1002, 1004), {"": 1001, "X": 1000, "Y,X": 1003}),
        ((1003, 1004), {"X": 1002, "Y,X": 1003}),
        ((), {}),
    ):
        lacking = {(txid - 500, append_hop(paths[txid - 1000], Hop("A", "A"))) for txid in held}

        def is_settled(
            last: int, kinds: Collection[EntryRoutingKey], source: str, lacking: Any = lacking
        ) -> bool:
            assert source == "A"
            return not any(
                own <= last and EntryRoutingKey(ORDERS, path) in kinds for own, path in lacking
            )

        ack = pair.receiver.make_ack(pair.destination.last_txid, is_settled)
        assert ack == Ack(end, [(lane_of(path), txid) for path, txid in acked.items()])
        pair.sender.process_ack(ack)
        assert {path: has(path) for path in paths} == dict.fromkeys(paths, end) | acked
        assert pair.sender.stored_txid == end
        assert pair.sender.settled_txid == ack.settled_txid == min([end, *acked.values()])


def asked(pair: Pair) -> None:
    pair.publish(1, 2)
    pair.sender.begin_link(pair.destination.peer)


def sending(pair: Pair) -> None:
    pair.publish(1, 2)
    pair.connect()
    pair.sender.next_frame(0)


LIES: dict[str, tuple[Callable[[Pair], None], Callable[[ReplicationSender], object], str]] = {
    "acks what was not sent": (sending, lambda s: s.process_ack(Ack(1002)), "entry 1002"),
    "acks lanes in disorder": (
        sending,
        lambda s: s.process_ack(Ack(1001, [(1, 999), (0, 999)])),
        "out of order",
    ),
    "acks a lane twice": (
        sending,
        lambda s: s.process_ack(Ack(1001, [(0, 1000), (0, 999)])),
        "out of order",
    ),
    "acks more than it stored": (
        sending,
        lambda s: s.process_ack(Ack(999, [(0, 1000)])),
        "not stored",
    ),
    "acks before it is sent anything": (asked, lambda s: s.process_ack(Ack(999)), "before any"),
    "has more than there is": (asked, lambda s: s.resume(PositionResponse(5000)), "entry 5000"),
    "says twice where it is": (
        sending,
        lambda s: s.resume(PositionResponse(999)),
        "a request",
    ),
    "tells what it has unasked": (
        sending,
        lambda s: s.process_dedup_state(DedupState([], True)),
        "a request",
    ),
}


@pytest.mark.parametrize(("begin", "lie", "why"), LIES.values(), ids=LIES)
def test_a_destination_that_lies_is_refused(
    begin: Callable[[Pair], None], lie: Callable[[ReplicationSender], object], why: str
) -> None:
    pair = Pair()
    begin(pair)
    with pytest.raises(ReplicationProtocolError, match=why):
        lie(pair.sender)
    assert not pair.sender.has_entries(1000, PUBLISHED)


def changed(batch: ReplicationBatch, **columns: Any) -> ReplicationBatch:
    """A batch with other columns."""
    assert batch.columns is not None
    return batch._replace(columns=batch.columns._replace(**columns))


DAMAGE: dict[str, tuple[Callable[[ReplicationBatch], ReplicationBatch], str]] = {
    "leaves something out": (lambda b: b._replace(after=b.after + 1), "follows entry 999"),
    "repeats something": (lambda b: b._replace(after=b.after - 1), "follows entry 999"),
    "changes a body": (
        lambda b: changed(b, data=[b"[]", b"{}", b"{}"]),
        "damaged",
    ),
    "has no numbers": (
        lambda b: changed(b, sequences=[0, 1, 2]),
        "without a sequence number",
    ),
    "has another kind": (
        lambda b: changed(b, kinds=[1, 6, 1]),
        "not replicated",
    ),
    "is in disorder": (
        lambda b: changed(b, txids=[1001, 1000, 1002]),
        "out of order",
    ),
    "goes too far": (lambda b: b._replace(upto=1001), "beyond its end"),
}


@pytest.mark.parametrize(("damage", "why"), DAMAGE.values(), ids=DAMAGE)
def test_a_source_that_lies_is_refused(
    damage: Callable[[ReplicationBatch], ReplicationBatch], why: str
) -> None:
    pair = Pair()
    pair.publish(1, 2, 3)
    pair.connect()
    batch = pair.pull()
    assert batch is not None
    with pytest.raises(ReplicationProtocolError, match=why):
        pair.receiver.receive_batch(damage(batch))
    assert not pair.destination.has()


def test_a_source_that_was_not_heard_of_is_refused() -> None:
    with pytest.raises(ReplicationProtocolError, match="unexpected batch"):
        End("B").receiver.receive_batch(ReplicationBatch(999, 1000, None))
    assert ReplicationSender(Log("A"), "A>B", ALL).state is SenderState.DISCONNECTED
    assert PositionRequest("A>B", 1000, 999) == ReplicationSender(Log("A"), "A>B", ALL).begin_link(
        End("B").peer
    )
