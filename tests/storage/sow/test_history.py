"""Historical queries: the state of a topic as it was at a moment."""

from __future__ import annotations

import errno
import json
import os
import random
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from server.expressions import parse
from server.storage.sow.history import HistoryPoint
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record
from server.storage.sow.store import RecordStore, RecordStoreError, cleaning_paused
from tests.storage.sow.support import SECOND, Clerk, Disk, make_topic, run, topic_spec

START = 1_000 * SECOND
FOREVER = 10**6 * SECOND


def clerk(window: int, granularity: int, store: RecordStore | None = None) -> Clerk:
    return Clerk(make_topic(topic_spec("/id", history=(window, granularity)), store))


def as_of(catalog: Clerk, moment: int, text: str = "1=1") -> list[object]:
    found = catalog.bodies(QuerySpec(filter=parse(text), as_of=HistoryPoint(moment)))
    return sorted(found, key=json.dumps)


def test_every_state_is_kept_when_the_granularity_is_zero() -> None:
    catalog = clerk(FOREVER, 0)
    for v in range(5):
        catalog.publish({"id": 1, "v": v})
        catalog.now += 10 * SECOND
    assert as_of(catalog, START - 1) == []
    for v in range(5):
        for moment in (v * 10, v * 10 + 9):
            assert as_of(catalog, START + moment * SECOND) == [{"id": 1, "v": v}]
    assert catalog.all() == [{"id": 1, "v": 4}]
    assert catalog.query(QuerySpec()).topic_matches == 1


@pytest.mark.parametrize("step", [-3600 * SECOND, 3600 * SECOND, -10 * SECOND])
def test_the_past_is_seen_by_the_clock_as_it_is_set_now(step: int) -> None:
    catalog = clerk(7200 * SECOND, 0)
    for v in range(6):
        if v == 3:
            catalog.now += step
            catalog.topic.shift_times(step)
        catalog.publish({"id": 1, "v": v})
        catalog.now += 10 * SECOND
    seen = [as_of(catalog, START + step + second * SECOND) for second in range(5, 60, 10)]
    assert seen == [[{"id": 1, "v": v}] for v in range(6)]
    assert catalog.topic.next_expiry() == START + step + 7210 * SECOND + 1


def test_states_are_kept_no_more_often_than_the_granularity() -> None:
    catalog = clerk(FOREVER, 60 * SECOND)
    for v in range(14):  # published at 0, 10, ... 130 seconds
        catalog.publish({"id": 1, "v": v})
        catalog.now += 10 * SECOND
    seen = [as_of(catalog, START + second * SECOND) for second in range(0, 140, 10)]
    assert seen == [[{"id": 1, "v": v}] for v in (0,) * 6 + (6,) * 6 + (12, 13)]


def test_a_deleted_record_is_gone_from_then_on_and_still_there_before() -> None:
    catalog = clerk(FOREVER, 0)
    catalog.publish({"id": 1, "v": 0})
    catalog.now += 10 * SECOND
    catalog.delete(*catalog.topic.find_by_body(b'{"id":1}'))
    catalog.now += 10 * SECOND
    catalog.publish({"id": 1, "v": 1})
    seen = [as_of(catalog, START + second * SECOND) for second in (0, 9, 10, 19, 20)]
    assert seen == [[{"id": 1, "v": 0}]] * 2 + [[]] * 2 + [[{"id": 1, "v": 1}]]


def test_a_record_that_came_back_is_kept_whatever_the_granularity() -> None:
    catalog = clerk(FOREVER, 3600 * SECOND)
    for v in range(3):
        catalog.publish({"id": 1, "v": v})
        catalog.now += 5 * SECOND
        catalog.delete(*catalog.topic.find_by_body(b'{"id":1}'))
        catalog.now += 5 * SECOND
    assert [as_of(catalog, START + second * SECOND) for second in (1, 6, 11, 16, 21, 26)] == [
        [{"id": 1, "v": 0}],
        [],
        [{"id": 1, "v": 1}],
        [],
        [{"id": 1, "v": 2}],
        [],
    ]


def test_before_the_window_there_is_nothing_and_the_current_state_stays() -> None:
    catalog = clerk(100 * SECOND, 0)
    for v in range(20):
        catalog.publish({"id": 1, "v": v})
        catalog.publish({"id": "old"} if v == 0 else {"id": 1, "v": v})
        catalog.now += 10 * SECOND
    end = catalog.now
    assert as_of(catalog, end - 101 * SECOND) == []
    assert as_of(catalog, end - 95 * SECOND) == [{"id": "old"}, {"id": 1, "v": 10}]
    assert len(catalog.topic.table.history or ()) <= 22
    catalog.now += 10_000 * SECOND
    assert catalog.topic.next_expiry() is not None
    assert catalog.topic.expire(catalog.now, 99) is None
    assert len(catalog.topic.table.history or ()) == 0
    assert catalog.topic.next_expiry() is None
    assert as_of(catalog, catalog.now) == [{"id": "old"}, {"id": 1, "v": 19}]


def test_a_moment_is_ignored_without_history() -> None:
    orders = Clerk(make_topic(topic_spec("/id")))
    orders.publish({"id": 1})
    assert as_of(orders, 5) == [{"id": 1}]


def test_sow_keys_and_filters_apply_to_past_states() -> None:
    catalog = clerk(FOREVER, 0)
    for v in range(10):
        for number in range(5):
            catalog.publish({"id": number, "v": v})
        catalog.now += SECOND
    key = catalog.topic.find_by_body(b'{"id":3}')[0].key
    moment = START + 4 * SECOND
    assert catalog.bodies(QuerySpec(keys=(key,), as_of=HistoryPoint(moment))) == [{"id": 3, "v": 4}]
    assert as_of(catalog, moment, "/id = '2'") == [{"id": 2, "v": 4}]
    assert as_of(catalog, moment, "/v = 5") == []


class Model:
    """Keeps everything, and works out which states a topic with History may forget."""

    def __init__(self, granularity: int) -> None:
        self._granularity = granularity
        self._states: dict[int, list[tuple[int, object]]] = {}
        self._current: dict[int, tuple[int, object]] = {}

    def change(self, number: int, now: int, value: object) -> None:
        before = self._current.pop(number, None)
        states = self._states.setdefault(number, [])
        if before is not None:
            recent = states and states[-1][1] is not None
            if not recent or before[0] - states[-1][0] >= self._granularity:
                states.append(before)
            if value is None:
                states.append((now, None))
        if value is not None:
            self._current[number] = (now, value)

    def as_of(self, moment: int) -> list[object]:
        found = []
        for number in self._states.keys() | self._current.keys():
            states = list(self._states.get(number, []))
            if number in self._current:
                states.append(self._current[number])
            holding = [value for since, value in states if since <= moment]
            if holding and holding[-1] is not None:
                found.append(holding[-1])
        return sorted(found, key=json.dumps)


@pytest.mark.parametrize("granularity", [0, 3 * SECOND, 50 * SECOND])
@pytest.mark.parametrize("seed", range(4))
def test_history_is_what_a_full_record_of_states_says_even_after_opening_again(
    tmp_path: Path, granularity: int, seed: int
) -> None:
    source = random.Random(seed)
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=1 << 14)
    catalog = clerk(FOREVER, granularity, store)
    model = Model(granularity)
    for step in range(300):
        catalog.now += source.randrange(1, 3) * SECOND
        number = source.randrange(6)
        if source.random() < 0.2:
            found = catalog.topic.find_by_body(b'{"id":%d}' % number)
            catalog.delete(*found)
            if found:
                model.change(number, catalog.now, None)
        else:
            value = {"id": number, "v": step}
            catalog.publish(value)
            model.change(number, catalog.now, value)
        if step % 100 == 60:
            now = catalog.now
            store.close()
            store, _ = disk.open()
            catalog = clerk(FOREVER, granularity, store)
            catalog.now = now
        moment = START + source.randrange(catalog.now - START + SECOND)
        assert as_of(catalog, moment) == model.as_of(moment)
    store.close()
    disk.close()


def test_changes_of_one_moment_are_told_apart_by_their_order(tmp_path: Path) -> None:
    source = random.Random(5)
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=1 << 14)
    catalog = clerk(FOREVER, 0, store)
    states: dict[int, list[object]] = {}
    records: dict[int, object] = {}
    for v in range(60):
        number = source.randrange(4)
        found = catalog.topic.find_by_body(b'{"id":%d}' % number)
        if found and source.random() < 0.3:
            catalog.delete(*found)
            del records[number]
        else:
            records[number] = {"id": number, "v": v}
            catalog.publish(records[number])
        states[catalog.sequence] = sorted(records.values(), key=json.dumps)
    for again in range(2):
        for sequence, expected in states.items():
            point = HistoryPoint(catalog.now, sequence)
            bodies = catalog.bodies(QuerySpec(as_of=point))
            assert sorted(bodies, key=json.dumps) == expected
        store.close()
        if not again:
            store, _ = disk.open()
            catalog = clerk(FOREVER, 0, store)
    disk.close()


def test_a_historical_query_is_not_disturbed_by_changes() -> None:
    source = random.Random(8)
    catalog = clerk(FOREVER, 2 * SECOND)
    for v in range(3000):
        catalog.publish({"id": source.randrange(6000), "v": v})
        catalog.now += SECOND // 100
    moment = catalog.now - SECOND
    expected = as_of(catalog, moment)
    query = catalog.query(QuerySpec(filter=parse("/v >= 0"), as_of=HistoryPoint(moment)))
    found: list[Record] = []
    for piece in query:
        found += piece
        for _ in range(500):
            catalog.publish({"id": source.randrange(6000), "v": 1})
            catalog.now += SECOND // 100
        catalog.delete(*catalog.topic.find_by_body(b'{"id":%d}' % source.randrange(6000)))
    assert sorted((json.loads(record.body) for record in found), key=json.dumps) == expected


def no_space(*_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_on_a_full_disk_what_there_is_space_to_delete_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past states that are dropped meanwhile take none of that space."""
    store, _ = Disk(tmp_path).open(topic="orders")
    catalog = clerk(10 * SECOND, 0, store)
    table = catalog.topic.table
    for number in range(300):
        catalog.publish({"id": number})
    for v in range(2_000):
        catalog.publish({"id": 1_000, "v": v})
    catalog.now += 100 * SECOND
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    records, sequences = run(catalog.query(QuerySpec())), count(catalog.sequence + 1)
    total = len(records)
    for size in (50, 20, 5, 1):
        while records:
            some, sequence = records[:size], next(sequences)
            try:
                table.ensure_space_to_remove(some)
            except RecordStoreError:
                break
            for record in some:
                assert table.remove(record.key, sequence, catalog.now) is not None
            del records[:size]
    assert len(records) < total - 5


def test_on_a_full_disk_past_states_take_no_space_that_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries about those that are dropped have space of their own, or are written later."""
    store, _ = Disk(tmp_path).open(topic="orders")
    catalog = clerk(10 * SECOND, 0, store)
    table = catalog.topic.table
    for v in range(2_000):
        catalog.publish({"id": 1, "v": v})
    catalog.now += 100 * SECOND
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    numbers = count(catalog.sequence + 1)

    def put_new_records(size: int) -> None:
        keys = [next(numbers) for _ in range(size)]
        batch = SowRecordBatch("orders", keys, [b"{}"] * size, keys, catalog.now)
        table.ensure_space_for_batch(batch)
        with cleaning_paused([store]):
            assert table.put_batch(batch, 0) == (size, None)

    for size in (400, 300, 200, 150, 100, 70, 50, 30, 20, 10, 5, 2, 1):
        with suppress(RecordStoreError):
            while True:
                put_new_records(size)
    assert len(table.history or ()) < 2_000 - 1
    for number in range(1_999, 1, -1):
        record = Record(f"k{number}", b"{}", "orders", catalog.now, 0, next(numbers))
        try:
            table.put(record)
        except RecordStoreError:
            break
        assert table.get(record.key) == record
    assert table.get(record.key) is None
