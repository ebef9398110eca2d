"""What waits for other instances is acknowledged by lanes, whatever is remembered of it."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from server.replication.core import Ack, EntryRoutingKey
from server.replication.core.ack_order import InFlightEntries, UnacknowledgedEntries, lane_of
from server.storage.journal import JournalTopic

LANES = range(3)
KINDS = [EntryRoutingKey(JournalTopic("json", "orders"), f"path {lane}") for lane in LANES]

Entry = tuple[int, int, int]  # its lane, its txid at the source, and here


class Waiting:
    """A backlog, and what is in it one by one."""

    def __init__(self, most_units: int) -> None:
        self.backlog = UnacknowledgedEntries(most_units)
        self.entries: list[Entry] = []
        self.watermarks: set[Entry] = set()
        self.asked = 0

    def add(self, lane: int) -> None:
        entry = lane, len(self.entries) + 1, len(self.entries) + 101
        self.entries.append(entry)
        self._add(entry)

    def add_again(self, place: int) -> None:
        if place < len(self.entries):
            self._add(self.entries[place])

    def _add(self, entry: Entry) -> None:
        self.watermarks.add(entry)
        lane, txid, own = entry
        self.backlog.add(lane, (txid, txid), own, {KINDS[lane]})

    def settle(self, places: Collection[int]) -> None:
        """Some of the entries have been acknowledged by other instances."""
        self.watermarks -= {one for one in self.entries if one[1] in places}
        self.asked = 0
        self.backlog.release_settled(1 << 60, self._is_settled, "source")

    def _is_settled(self, last: int, kinds: Collection[EntryRoutingKey], source: str) -> bool:
        self.asked += 1
        return not any(own <= last and KINDS[lane] in kinds for lane, _, own in self.watermarks)

    def settled(self) -> dict[int, int]:
        """Up to where what is acknowledged of each lane."""
        stored = len(self.entries)
        return dict.fromkeys(LANES, stored) | dict(self.backlog.pending_lanes(stored))


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(LANES)),
    st.tuples(st.just("add_again"), st.integers(0, 7)),
    st.tuples(st.just("settle"), st.sets(st.integers(1, 8))),
)


@given(st.lists(STEPS, min_size=1, max_size=60), st.integers(0, 3))
def test_nothing_is_acknowledged_before_it_is_settled(
    steps: list[tuple[str, int]], most_units: int
) -> None:
    waiting = Waiting(most_units)
    for step, about in steps:
        getattr(waiting, step)(about)
        settled = waiting.settled()
        assert all(settled[lane] < txid for lane, txid, _ in waiting.watermarks)
    waiting.settle(range(100))
    assert set(waiting.settled().values()) == {len(waiting.entries)}


@given(st.lists(st.sampled_from(LANES), max_size=30), st.integers(0, 10))
def test_a_lane_does_not_wait_for_another(lanes: list[int], most_units: int) -> None:
    waiting = Waiting(most_units)
    for lane in lanes:
        waiting.add(lane)
    waiting.settle([txid for lane, txid, _ in waiting.entries if lane != 1])
    others = {lane: txid for lane, txid in waiting.settled().items() if lane != 1}
    assert set(others.values()) == {len(lanes)}


def test_little_is_remembered_however_much_waits() -> None:
    waiting = Waiting(most_units=10)
    for number in range(1000):
        waiting.add(number % len(LANES))
    waiting.settle(range(1, 2000))
    assert waiting.asked <= 10 + 2 * len(LANES), "each part is asked for once"
    assert set(waiting.settled().values()) == {1000}


def test_what_comes_and_comes_does_not_put_off_what_is_there() -> None:
    waiting = Waiting(most_units=0)
    acked = []
    for number in range(1, 200):
        waiting.add(0)
        waiting.settle(range(number - 20))
        acked.append(waiting.settled()[0])
    assert all(acked[place + 60] > acked[place] for place in range(len(acked) - 60))


def test_a_source_knows_of_each_lane_what_is_under_way() -> None:
    under_way = InFlightEntries(9)
    under_way.record_sent([0], 12)
    under_way.record_sent([0, 1], 20)
    assert [under_way.has_lane_up_to(lane, 12) for lane in LANES] == [False, False, True]
    assert under_way.settled_txid == 9
    under_way.process_ack(Ack(20, [(0, 11), (1, 18)]))
    assert [under_way.has_lane_up_to(lane, 12) for lane in LANES] == [False, True, True]
    assert (under_way.stored_txid, under_way.settled_txid) == (20, 11)
    under_way.process_ack(Ack(20))
    assert under_way.settled_txid is None
    under_way.resume(20, Ack(15, [(1, 13)]))
    assert [under_way.has_lane_up_to(lane, 14) for lane in LANES] == [True, False, True]
    assert [under_way.has_lane_up_to(lane, 16) for lane in LANES] == [False] * 3, "not stored"
    assert under_way.settled_txid == 13


def test_paths_of_different_lengths_have_different_lanes() -> None:
    paths = ["", *(",".join(f"I{one}" for one in range(count)) for count in range(1, 40))]
    assert len({lane_of(path) >> 16 for path in paths}) == len(paths)
    assert lane_of("") == 0
    assert lane_of("A,B") != lane_of("B,A")
