"""What every record store does; a new implementation adds a line to `make_store`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.records import Record
from server.storage.sow.store import PastVersion, RecordStore, RecordStoreError, identity_of
from tests.storage.sow.model import apply_to_model, apply_to_store, state_of, steps
from tests.storage.sow.support import Disk
from tests.support.chances import examples

KINDS = ["memory", "file"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    opened = Disk(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, disk: Disk) -> Iterator[RecordStore]:
    made: RecordStore = MemoryStore() if request.param == "memory" else disk.open()[0]
    yield made
    made.close()


def record(key: str, body: bytes = b"{}", timestamp: int = 0, sequence: int = 0) -> Record:
    return Record(key, body, "t", timestamp, sequence=sequence)


def test_a_record_is_found_by_its_identity_and_read_by_its_row(store: RecordStore) -> None:
    whole = Record("k", b'{"a":1}', "logical", 1, 2, 3, "correlation", "1|2|")
    row = store.put("k", whole)
    assert store.find_row("k") == row
    assert store.read_record(row) == whole
    other = store.put("other", Record("other", b"", "t"))
    assert store.read_bodies([row, row]) == [b'{"a":1}', b'{"a":1}']
    assert store.read_records([other, row]) == [store.read_record(other), whole]
    joined = store.read_joined_bodies([row, -1, other, row])
    assert joined.data == b'{"a":1}\0\0\0{"a":1}\0'
    assert list(joined.ends) == [7, 8, 9, 17]
    assert store.find_row("none") is None
    assert len(store) == 2


def test_an_update_stays_in_its_row(store: RecordStore) -> None:
    row = store.put("k", record("k", b"1"))
    store.put("other", record("other"))
    assert store.put("k", record("k", b"22")) == row
    assert store.read_record(row).body == b"22"
    assert len(store) == 2


def test_the_row_of_a_deleted_record_is_used_again(store: RecordStore) -> None:
    row = store.put("k", record("k"))
    assert store.delete("k", 9) == row
    assert store.find_row("k") is None
    assert len(store) == 0
    assert store.put("new", record("new")) == row
    assert store.row_capacity == 1


def test_the_last_sequence_counts_puts_and_deletions(store: RecordStore) -> None:
    store.put("k", record("k", sequence=5))
    assert store.last_sequence == 5
    store.delete("k", 8)
    assert store.last_sequence == 8
    store.put("k", record("k", sequence=3))
    assert store.last_sequence == 8


def test_past_states_have_rows_that_no_identity_finds(store: RecordStore) -> None:
    current = store.put("k", record("k", b"new", timestamp=2))
    first = PastVersion("k", record("k", b"old", timestamp=1), is_deleted=False)
    second = PastVersion("k", record("k", b"", timestamp=0), is_deleted=True)
    rows = [store.put_past(first), store.put_past(second)]
    assert current not in rows
    assert dict(store.past_versions()) == dict(zip(rows, [first, second], strict=True))
    assert list(store.identities()) == [("k", current)]
    store.delete_past(rows[0])
    assert list(store.past_versions()) == [(rows[1], second)]
    assert len(store) == 1


def test_statistics_count_records_and_past_states(store: RecordStore) -> None:
    store.put("k", record("k", b"x" * 100))
    store.put_past(PastVersion("k", record("k", b"x" * 50), is_deleted=False))
    assert store.statistics.records == 2
    assert store.statistics.stored_bytes >= 150
    assert store.statistics.allocated_bytes >= store.statistics.stored_bytes


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40_000])
def test_bodies_of_any_size_come_back(store: RecordStore, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    row = store.put("k", record("k", body))
    assert store.read_record(row).body == body


@settings(
    deadline=None,
    max_examples=examples(40, 8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), reopen=st.lists(st.integers(0, 400), max_size=3))
def test_a_file_holds_what_a_dictionary_would_and_still_does_after_opening_it_again(
    tmp_path: Path, seed: int, reopen: list[int]
) -> None:
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=4096 * 3)
    model: dict[str, Record] = {}
    for number, step in enumerate(islice(steps(seed), 400)):
        apply_to_store(store, step)
        apply_to_model(model, step)
        if number % 7 == 0:
            store.commit()
            disk.settle()
        if number in reopen:
            store.close()
            store, recovery = disk.open()
            assert recovery.damage is None
            assert recovery.lost_bytes == 0
    assert state_of(store) == model
    store.close()
    disk.close()
    (tmp_path / "t.sow").unlink()


def test_a_memory_store_holds_what_a_dictionary_would() -> None:
    store = MemoryStore()
    model: dict[str, Record] = {}
    for step in islice(steps(7), 2000):
        apply_to_store(store, step)
        apply_to_model(model, step)
    assert state_of(store) == model
    assert store.statistics.stored_bytes == sum(len(each.body) for each in model.values())


def test_a_record_larger_than_a_slab_is_refused_and_the_old_one_stays(disk: Disk) -> None:
    store, _ = disk.open(slab_size=4096)
    row = store.put("k", record("k", b"small"))
    with pytest.raises(RecordStoreError, match="SlabSize of 4096"):
        store.put("k", record("k", bytes(5000)))
    assert store.read_record(row).body == b"small"
    with pytest.raises(RecordStoreError, match="more than 65535 bytes"):
        store.put("k" * 70_000, record("k" * 70_000))
    store.close()


def test_a_commit_calls_back_after_the_file_is_on_stable_storage(tmp_path: Path) -> None:
    synchronised: list[int] = []
    disk = Disk(tmp_path, synchronised.append)
    store, _ = disk.open()
    told: list[RecordStoreError | None] = []
    store.put("k", record("k"))
    store.commit(told.append)
    assert not told
    disk.settle()
    assert told == [None]
    assert synchronised
    store.close()
    disk.close()


def test_what_cannot_be_synchronised_is_said_and_is_part_of_the_next_commit(
    tmp_path: Path,
) -> None:
    """After a failure the system takes pages for written: they have to be touched again."""
    is_broken = False

    def synchronise(descriptor: int) -> None:
        os.fdatasync(descriptor)  # which leaves the pages clean, as a failure does
        if is_broken:
            raise OSError(5, "Input/output error")

    disk = Disk(tmp_path, synchronise)
    store, _ = disk.open(slab_size=1 << 14)
    is_broken = True
    for number in range(30):
        store.put(f"{number}", record(f"{number}", bytes(4096)))
    told: list[RecordStoreError | None] = []
    for _ in range(2):
        store.commit(told.append)
    disk.settle()
    why = f"{tmp_path / 't.sow'} cannot be flushed to stable storage: Input/output error"
    assert [str(problem) for problem in told] == [why] * 2
    assert {failure.errno for failure in disk.failures} == {5}
    assert dirty_kilobytes(tmp_path / "t.sow") >= 30 * 4
    is_broken = False
    store.commit(told.append)
    disk.settle()
    assert told[2:] == [None]
    store.close()
    disk.close()


def dirty_kilobytes(path: Path) -> int:
    """What this process has changed of a file, through memory, since it was last written."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and name in ("Shared_Dirty:", "Private_Dirty:"):
            found += int(rest[0])
    return found


def test_a_compaction_ends_where_nothing_can_be_synchronised(tmp_path: Path) -> None:
    def synchronise(_: int) -> None:
        raise OSError(5, "Input/output error")

    disk = Disk(tmp_path, synchronise)
    store, _ = disk.open()
    store.put("k", record("k"))
    slices = store.compact()
    assert next(slices, "at its end") is None
    disk.settle()
    with pytest.raises(RecordStoreError, match="cannot be flushed to stable storage"):
        next(slices)
    store.close()
    disk.close()


def test_a_file_does_not_grow_without_end_when_records_are_updated(disk: Disk) -> None:
    store, _ = disk.open(slab_size=1 << 16)
    for number in range(20_000):
        key = f"{number % 500}"
        store.put(key, record(key, bytes(200)))
        if number % 100 == 0:
            store.commit()
            disk.settle()
    statistics = store.statistics
    assert statistics.allocated_bytes < 4 * statistics.stored_bytes + 8 * (1 << 16)
    assert len(store) == 500
    store.close()


def test_compaction_gives_space_back_while_records_change(disk: Disk) -> None:
    store, _ = disk.open(slab_size=1 << 16)
    for number in range(5000):
        store.put(f"{number}", record(f"{number}", bytes(200)))
    for number in range(100, 5000):
        store.delete(f"{number}", 1)
    before = store.statistics.allocated_bytes
    for number, _ in enumerate(store.compact()):
        store.put(f"{number % 50}", record(f"{number % 50}", b"changed" * 20))
        disk.settle()
    after = store.statistics.allocated_bytes
    assert after < before / 5
    expected = state_of(store)
    assert len(expected) == 100
    store.close()
    store, recovery = disk.open()
    assert recovery.damage is None
    assert state_of(store) == expected
    store.close()


def test_past_states_survive_opening_again(disk: Disk) -> None:
    store, _ = disk.open(pattern=True)
    kept = []
    for number in range(50):
        past = record("k", b"%d" % number, timestamp=number)._replace(topic=f"topic-{number % 3}")
        identity = identity_of(past, pattern=True)
        kept.append(store.put_past(PastVersion(identity, past, is_deleted=number % 2 == 1)))
    for row in kept[:20]:
        store.delete_past(row)
    expected = sorted(past for _, past in store.past_versions())
    assert len(expected) == 30
    store.close()
    store, _ = disk.open(pattern=True)
    assert sorted(past for _, past in store.past_versions()) == expected
    store.close()
