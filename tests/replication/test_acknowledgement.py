"""What is settled when, and who is waited for; what is remembered of all that."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from server.replication.core import (
    VERSION,
    AcknowledgementTracker,
    DedupWindowRecovery,
    DestinationLag,
    EntryRoutingKey,
    Hello,
    PeerConnection,
    PersistentState,
    PublisherWindow,
    ReceiveCursor,
    RecentEntries,
    ReplicationSender,
    choose_connection,
    group_refusal,
    pack,
    refusal,
    unpack,
)
from server.storage.journal import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import JournalFormatError
from server.util.clock import ElapsedMicroseconds
from tests.replication.memory import Log

ORDERS = JournalTopic("json", "orders")
SECOND = 1_000_000


class Destination(ReplicationSender):
    """A destination that has everything up to a txid."""

    settled_txid = 0

    def __init__(self, instance: str, settled_txid: int = 0) -> None:
        self.instance = instance
        self.settled_txid = settled_txid

    def has_entries(self, last: int, routing_keys: Collection[EntryRoutingKey]) -> bool:
        return last <= self.settled_txid or all(key.topic != ORDERS for key in routing_keys)

    def is_peer(self, instance: str) -> bool:
        return self.instance == instance


def seconds(count: int) -> ElapsedMicroseconds:
    return ElapsedMicroseconds(count * SECOND)


def bench(least_sync: int = 0) -> tuple[AcknowledgementTracker, dict[str, Destination]]:
    destinations = {name: Destination(name) for name in ("B", "C", "D")}
    sync = frozenset(("B", "C"))
    return AcknowledgementTracker(destinations, sync, 0, seconds(0), least_sync), destinations


def test_sync_is_waited_for_and_async_is_not() -> None:
    settlement, destinations = bench()
    settlement.advance_durable(10)
    assert not settlement.update_settled()
    destinations["B"].settled_txid = 8
    destinations["C"].settled_txid = 9
    assert settlement.update_settled()
    assert settlement.settled_txid == 8
    destinations["B"].settled_txid = destinations["C"].settled_txid = 20
    assert settlement.update_settled()
    assert settlement.settled_txid == 10, "not before it is on stable storage here"


def test_destinations_are_replaced_and_entries_count_from_then_on() -> None:
    settlement, destinations = bench()
    settlement.record_append(10, seconds(1))
    settlement.advance_durable(10)
    assert settlement.downgrade("C")
    replaced = {"B": Destination("B"), "C": destinations["C"], "E": Destination("E")}
    settlement.replace_destinations(replaced, frozenset(("B", "C", "E")), seconds(50))
    assert settlement.awaited_destinations == {"B", "E"}, "C stays downgraded"
    since = {lag.destination: lag.since_us for lag in settlement.destination_lags()}
    assert since == {"B": seconds(50), "C": seconds(1), "E": seconds(50)}
    assert settlement.late_destinations(SECOND, seconds(50)) == []
    settlement.replace_destinations({"C": replaced["C"]}, frozenset("C"), seconds(60))
    assert settlement.update_settled()
    assert settlement.settled_txid == 10


def test_entries_that_do_not_go_there_do_not_wait() -> None:
    settlement, destinations = bench()
    settlement.advance_durable(5)
    other, order = EntryRoutingKey(JournalTopic("json", "other"), ""), EntryRoutingKey(ORDERS, "")
    assert settlement.is_settled(4, (other,), "X")
    assert not settlement.is_settled(6, (other,), "X")
    assert not settlement.is_settled(4, (order,), "X")
    assert not settlement.is_settled(4, (other, order), "X"), "one of them goes there"
    destinations["B"].settled_txid = destinations["C"].settled_txid = 4
    assert settlement.is_settled(4, (other, order), "X")


def test_the_source_of_an_entry_is_not_waited_for() -> None:
    settlement, destinations = bench()
    settlement.advance_durable(5)
    kinds = (EntryRoutingKey(ORDERS, ""),)
    destinations["B"].settled_txid = 4
    assert not settlement.is_settled(4, kinds, "B")
    assert settlement.is_settled(4, kinds, "C")


def test_a_downgrade_releases_at_once_and_an_upgrade_takes_nothing_back() -> None:
    settlement, destinations = bench()
    settlement.advance_durable(10)
    destinations["B"].settled_txid = 10
    assert settlement.downgrade("C")
    assert not settlement.downgrade("C")
    assert not settlement.downgrade("D"), "it is async"
    assert settlement.update_settled()
    assert settlement.settled_txid == 10
    assert settlement.upgrade("C")
    assert not settlement.upgrade("C")
    assert not settlement.update_settled()
    assert settlement.settled_txid == 10
    settlement.advance_durable(11)
    destinations["B"].settled_txid = 11
    assert not settlement.update_settled()


def test_what_waits_too_long_is_downgraded_and_upgraded_when_it_has_caught_up() -> None:
    settlement, destinations = bench()
    settlement.record_append(10, seconds(1))
    settlement.record_append(20, seconds(4))
    destinations["B"].settled_txid = 20
    destinations["C"].settled_txid = 15
    assert settlement.destination_lags() == [
        DestinationLag("C", 15, seconds(4)),
        DestinationLag("D", 0, seconds(1)),
    ]
    assert not settlement.downgrade_late(3 * SECOND, seconds(7))
    assert settlement.downgrade_late(3 * SECOND, seconds(8)) == ["C"]
    assert not settlement.upgrade_recovered(2 * SECOND, seconds(9))
    destinations["C"].settled_txid = 20
    assert settlement.upgrade_recovered(2 * SECOND, seconds(9)) == ["C"]
    assert settlement.awaited_destinations == {"B", "C"}


def test_some_are_waited_for_however_long_that_takes() -> None:
    settlement, destinations = bench(least_sync=1)
    settlement.record_append(10, seconds(1))
    settlement.record_append(20, seconds(2))
    destinations["C"].settled_txid = 10
    assert settlement.downgrade_late(SECOND, seconds(60)) == ["B"], "it is later than C"
    assert not settlement.downgrade_late(SECOND, seconds(99))


def test_when_things_were_recorded_is_kept_within_bounds() -> None:
    settlement, destinations = bench()
    for second in range(1, 20_000):
        settlement.record_append(second, seconds(second))
    destinations["B"].settled_txid = 19_998
    assert abs(settlement.destination_lags()[0].since_us - 19_999 * SECOND) < 100 * SECOND
    for after in (0, 100, 9_000):
        destinations["B"].settled_txid = after
        assert abs(settlement.destination_lags()[0].since_us - (after + 1) * SECOND) < 100 * SECOND


REMEMBERED = PersistentState(
    "A/1",
    50,
    {"B": ReceiveCursor("B/1>A", 7)},
    {"B": 12},
    [PublisherWindow(1 << 63, 10, [(3, 4), (6, 6)]), PublisherWindow(2, 5)],
    {"B": "1-b", "C": "1-c"},
)


def test_what_is_remembered_comes_back() -> None:
    found = unpack(pack(REMEMBERED))
    assert found == PersistentState(
        "A/1",
        50,
        {"B": ReceiveCursor("B/1>A", 7)},
        {"B": 12},
        [PublisherWindow(1 << 63, 10, [(3, 4), (6, 6)]), PublisherWindow(2, 5)],
        {"B": "1-b", "C": "1-c"},
    )
    assert unpack(pack(PersistentState("A/1", 0))) == PersistentState("A/1", 0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (b"AMPGQACK" + bytes(20), "does not begin"),
        (pack(REMEMBERED)[:-1], "checksum"),
        (pack(REMEMBERED)[:30] + b"x" + pack(REMEMBERED)[31:], "checksum"),
    ],
)
def test_what_is_damaged_is_not_believed(data: bytes, why: str) -> None:
    with pytest.raises(JournalFormatError, match=why):
        unpack(data)


def test_the_log_tells_what_was_not_remembered() -> None:
    log = Log("A")
    log.append(ORDERS, 7, 2, b"")
    log.append(ORDERS, 8, 0, b"")  # its number is of this log
    log.append(ORDERS, 7, 6, b"", origin=JournalOrigin("", "B"), source=1)
    log.append(ORDERS, 7, 4, b"", origin=JournalOrigin("", "C"), source=1)
    log.append(ORDERS, 9, 1003, b"", origin=JournalOrigin("", "C"), source=1)
    log.durable = log.last_txid
    for txid, had in (
        (0, []),
        (1001, [PublisherWindow(7, 2, [(1, 1)])]),
        (1002, [PublisherWindow(7, 6, [(1, 1), (3, 5)])]),
    ):
        recollection = DedupWindowRecovery(
            PersistentState("A/1000", txid, publisher_windows=had),
            RecentEntries(),
            is_log_complete=True,
        )
        for run in (
            log.read_from(999, lambda topic: True)
            .read_for_forwarding(100)
            .to_entry_range()
            .batches()
        ):
            recollection.replay_batch(run)
        assert recollection.dedup_window.gaps(7) == ((1, 1), (3, 3), (5, 5))
        assert recollection.dedup_window.highest_sequence(7) == 6
        assert recollection.dedup_window.highest_sequence(9) == 1003


def test_what_publishers_sent_before_the_log_begins_counts_as_had() -> None:
    log = Log("A")
    for number in (5, 9, 10):
        log.append(ORDERS, 7, number, b"")
    log.append(ORDERS, 8, 3, b"")
    log.durable = log.last_txid
    log.remove_before(1001)
    recollection = DedupWindowRecovery(
        PersistentState("A/1000", 0), RecentEntries(), is_log_complete=False
    )
    for run in (
        log.read_from(1000, lambda topic: True).read_for_forwarding(100).to_entry_range().batches()
    ):
        recollection.replay_batch(run)
    assert not recollection.dedup_window.gaps(7)
    assert not recollection.dedup_window.new_positions(7, [5, 8, 10])
    assert not recollection.dedup_window.gaps(8)


OURS = Hello(VERSION, "A", "North", "A/1", 1, nonce=1)
THEIRS = Hello(VERSION, "B", "South", "B/1", 1, nonce=2)


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (THEIRS, None),
        (Hello(VERSION + 1, "B", "South", "B/1", 1), f"speaks version {VERSION + 1}"),
        (Hello(VERSION, "", "South", "B/1", 1), "must have a Name"),
        (Hello(VERSION, "A", "North", "A/2", 1, nonce=3), "both instances are called A"),
        (Hello(VERSION, "A", "North", "A/2", 1, nonce=0), "both instances are called A"),
        (Hello(VERSION, "A", "North", "A/1", 1, nonce=1), "connected to itself"),
        (Hello(VERSION, "C", "South", "C/2", 1), "another instance that is called C"),
        (Hello(VERSION, "C", "South", "C/1", 1), None),
        (Hello(VERSION, "B", "South", "B/1", 1, sends=False, takes=False), "neither A nor B"),
    ],
)
def test_who_may_replicate(theirs: Hello, why: str | None) -> None:
    found = refusal(OURS, theirs, [Hello(VERSION, "C", "South", "C/1", 1)])
    assert found is None if why is None else why in (found or "")


def test_a_destination_is_of_its_group() -> None:
    assert group_refusal(OURS, THEIRS, "South") is None
    assert "of the group South" in (group_refusal(OURS, THEIRS, "East") or "")


@pytest.mark.parametrize(
    ("made_by", "both_ways", "stay"),
    [
        ("AB", (True, True), "A"),
        ("BA", (True, True), "A"),
        ("AB", (True, False), "A"),
        ("AB", (False, True), "B"),
        ("BA", (False, True), "A"),
        ("BA", (True, False), "B"),
        ("AB", (False, False), "both"),
        ("BA", (False, False), "both"),
        ("AA", (True, False), "new"),
        ("BB", (False, False), "new"),
    ],
)
def test_both_ends_keep_the_same_connections(
    made_by: str, both_ways: tuple[bool, bool], stay: str
) -> None:
    """Of an old one and a new one."""
    found = set[str]()
    for us, them in (("A", "B"), ("B", "A")):
        old, new = (
            PeerConnection(one == us, way) for one, way in zip(made_by, both_ways, strict=True)
        )
        found.add(choose_connection(us, them, old, new).value)
    names = {"both": "both", "new": "new", made_by[0]: "old", made_by[1]: "new"}
    assert found == {names[stay]}
