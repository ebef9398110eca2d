"""Records that are put together are what they are one by one: keys, stores, files after a crash."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.message_types.paths import Path as FieldPath
from server.message_types.registry import create
from server.storage.journal.write.blocks import of_one
from server.storage.sow.keys.key_source import FieldKeys
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record
from server.storage.sow.slab.entry_writer import clean, index_batch, write_batch
from server.storage.sow.slab.map_guard import MapGuard
from server.storage.sow.slab.slab_format import ENTRY, crc32c
from server.storage.sow.store import (
    PastVersion,
    RecordStore,
    RecordTooLargeError,
    cleaning_paused,
    identity_of,
)
from tests.storage.sow.model import state_of
from tests.storage.sow.spoiled_slabs import spoiled
from tests.storage.sow.support import Disk, make_topic, topic_spec
from tests.support.chances import examples

# ---- keys

ODD = [
    b"",
    b"{",
    b"no json",
    b"[1]",
    b'{"id":null}',
    b'{"id":""}',
    b'{"id":"","id":"second"}',
    b'{"id":1,"id":2}',
    b'{"ID":1}',
    b'{"id":true}',
    b'{"id":false}',
    b'{"id":"\\u00e9\\n\\ud800"}',
    b'{"id":"\xff\xfe"}',
    b'{"id":"caf\xc3\xa9"}',
    b'{"id":-0}',
    b'{"id":-0.0}',
    b'{"id":1.50}',
    b'{"id":1e3}',
    b'{"id":NaN}',
    b'{"id":9223372036854775807}',
    b'{"id":9223372036854775808}',
    b'{"id":-9223372036854775808}',
    b'{"id":-9223372036854775809}',
    b'{"id":18446744073709551616}',
    b'{"id":123456789012345678901234567890}',
    b'{"id":[1,2]}',
    b'{"id":[]}',
    b'{"id":{"a":1}}',
    b'{"id" : "5" }',
    b'{"id":5,"account":"x"}',
    b'{"id":5,"account":null,"n":{"m":7}}',
    b'{"id":"5;","account":"=;"}',
    b'{"id":"' + b"long" * 100 + b'"}',
    b'\xef\xbb\xbf{"id":1}',
]
FIELDS: list[list[FieldPath]] = [
    [("id",)],
    [("id",), ("account",)],
    [("account",), ("n", "m"), ("id",)],
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.text(max_size=4), st.integers(-(2**70), 2**70), st.floats()
)


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("last_wins", [False, True])
def test_odd_messages_have_the_keys_together_that_they_have_alone(
    fields: list[FieldPath], *, last_wins: bool
) -> None:
    options = {"EarlyTerminationOptimization": ["false"]} if last_wins else {}
    keys = FieldKeys("orders", create("json", "json", options), fields)
    assert keys.key_numbers(ODD) == [int(keys.key(body, None)) for body in ODD]


@given(st.lists(st.dictionaries(st.sampled_from(["id", "account", "n"]), SCALARS), min_size=1))
def test_messages_have_the_keys_together_that_they_have_alone(
    messages: list[dict[str, object]],
) -> None:
    bodies = [json.dumps(message).encode() for message in messages]
    for fields in FIELDS:
        keys = FieldKeys("caf\u00e9", create("json", "json", {}), fields)
        assert keys.key_numbers(bodies) == [int(keys.key(body, None)) for body in bodies]


def test_keys_of_other_types_than_json() -> None:
    keys = FieldKeys("orders", create("fix", "fix", {}), [("11",), ("35",)])
    bodies = [b"35=D\x0111=A\x01", b"11=7\x01", b"", b"11=\xff\x0135=\x01"]
    assert keys.key_numbers(bodies) == [int(keys.key(body, None)) for body in bodies]


@given(st.lists(st.tuples(st.sampled_from(["a", "caf\u00e9"]), st.sampled_from(ODD)), min_size=1))
def test_messages_of_several_topics_have_the_keys_of_their_topics(
    messages: list[tuple[str, bytes]],
) -> None:
    topics, bodies = [topic for topic, _ in messages], [body for _, body in messages]
    message_type = create("json", "json", {})
    for fields in FIELDS:
        keys = FieldKeys("other", message_type, fields)
        assert keys.key_numbers(bodies, topics) == [
            int(FieldKeys(topic, message_type, fields).key(body, None)) for topic, body in messages
        ]


# ---- stores

TOPICS = ["t", "t1", "caf\u00e9/2", "c\udcff"]
KEYS = [0, 1, 9, 10, 123, 2**63, 2**64 - 1, *range(1000, 1030)]
COLUMNS = (
    "topic",
    "keys",
    "bodies",
    "sequences",
    "timestamp",
    "expires",
    "publisher",
    "numbers",
    "correlation_ids",
    "deletions",
)
MARKS = ["", "mark", "caf\u00e9", "c\udcff", "x" * 300]


def runs(seed: int, *, pattern: bool = False) -> Iterator[SowRecordBatch]:
    """Runs of records, the same for the same seed; sequences count from 1."""
    source = random.Random(seed)
    sequence = 1
    while True:
        count = source.choice((1, 2, 8, 40))
        bodies = [
            source.randbytes(source.choice((0, 1, 7, 8, 9, 60, 200, 1500))) for _ in range(count)
        ]
        yield SowRecordBatch(
            source.choices(TOPICS, k=count) if pattern else "t",
            source.choices(KEYS, k=count),
            bodies,
            range(sequence, sequence + count),
            timestamp=sequence * 10,
            expires=source.choice((0, sequence * 20)),
            publisher=source.choice((0, 7, 2**64 - 1)),
            numbers=source.choices((1, 10, 2**64 - 1), k=count) if source.random() < 0.5 else (),
            correlation_ids=source.choices(MARKS, k=count) if source.random() < 0.5 else (),
        )
        sequence += count


def replaced(run: SowRecordBatch, **columns: Any) -> SowRecordBatch:
    """Return a batch with other columns."""
    return SowRecordBatch(**{name: getattr(run, name) for name in COLUMNS} | columns)


def put_all(store: RecordStore, run: SowRecordBatch) -> list[int]:
    """Put a run, passing over what is too large; returns the places of that."""
    refused = []
    place = 0
    while place < len(run.bodies):
        put = store.put_batch(run, place)
        assert len(put.rows) == put.end - place
        place = put.end
        if put.problem is not None:
            assert isinstance(put.problem, RecordTooLargeError)
            refused.append(place)
            place += 1
    return refused


def put_each(store: RecordStore, run: SowRecordBatch) -> list[int]:
    """The same, one by one."""
    refused = []
    for place in range(len(run.bodies)):
        record = run.record_at(place)
        try:
            store.put(identity_of(record, pattern=not isinstance(run.topic, str)), record)
        except RecordTooLargeError:
            refused.append(place)
    return refused


@contextmanager
def a_disk() -> Iterator[Disk]:
    with tempfile.TemporaryDirectory() as directory:
        disk = Disk(Path(directory))
        try:
            yield disk
        finally:
            disk.close()


@settings(deadline=None, max_examples=examples(12, 5))
@given(seed=st.integers(0, 10**6), slab_pages=st.sampled_from([1, 3, 16]), pattern=st.booleans())
def test_runs_leave_the_records_that_their_messages_leave_one_by_one(
    *, seed: int, slab_pages: int, pattern: bool
) -> None:
    """Among deletions and past states, while slabs are cleaned, after a crash and after a close."""
    source = random.Random(seed)
    with a_disk() as disk:
        together, _ = disk.open(slab_size=4096 * slab_pages, pattern=pattern)
        alone = MemoryStore()
        past: list[PastVersion] = []
        rows: dict[int, int] = {}
        stream = runs(seed, pattern=pattern)
        for _ in range(60):
            run = next(stream)
            refused = put_all(together, run)
            assert len(refused) <= len(run.bodies)
            for place in range(len(run.bodies)):
                if place not in refused:
                    record = run.record_at(place)
                    alone.put(identity_of(record, pattern=pattern), record)
            if source.random() < 0.3 and len(alone):
                key = source.choice(sorted(identity for identity, _ in alone.identities()))
                if source.random() < 0.3:
                    past.append(
                        PastVersion(
                            key, alone.read_record(alone.find_row(key) or 0), is_deleted=False
                        )
                    )
                    rows[len(past) - 1] = together.put_past(past[-1])
                alone.delete(key, run.sequences[-1])
                together.delete(key, run.sequences[-1])
            if source.random() < 0.3:
                together.commit()
                disk.settle()
            if source.random() < 0.1:
                for _ in together.compact():
                    disk.settle()
        assert state_of(together) == state_of(alone)
        assert together.last_sequence == alone.last_sequence
        assert dict(together.past_versions()) == {
            rows[number]: one for number, one in enumerate(past)
        }
        live = together.statistics.stored_bytes
        shutil.copy(disk.directory / "t.sow", disk.directory / "killed.sow")
        together.close()
        for name in ("t.sow", "killed.sow"):
            found, recovery = disk.open(name=name, pattern=pattern)
            assert (recovery.damage, recovery.lost_bytes) == (None, 0)
            assert state_of(found) == state_of(alone)
            assert found.last_sequence == alone.last_sequence
            assert found.statistics.stored_bytes == live
            found.close()


@settings(deadline=None, max_examples=examples(12, 5))
@given(seed=st.integers(0, 10**6), pattern=st.booleans())
def test_the_file_of_a_run_is_to_the_byte_that_of_its_messages_one_by_one(
    *, seed: int, pattern: bool
) -> None:
    """As long as nothing is cleaned, which happens at other moments."""
    with a_disk() as disk:
        one, _ = disk.open(name="one.sow", slab_size=1 << 16, pattern=pattern)
        other, _ = disk.open(name="other.sow", slab_size=1 << 16, pattern=pattern)
        stream = runs(seed, pattern=pattern)
        for _ in range(6):
            run = next(stream)
            with cleaning_paused([one, other]):
                assert put_all(one, run) == put_each(other, run)
        assert list(one.identities()) == list(other.identities())
        disk.settle()
        files = [(disk.directory / name).read_bytes()[4096:] for name in ("one.sow", "other.sow")]
        assert files[0] == files[1]
        one.close()
        other.close()


@pytest.mark.parametrize("pattern", [False, True])
def test_a_transient_store_takes_runs(*, pattern: bool) -> None:
    together, alone = MemoryStore(), MemoryStore()
    stream = runs(5, pattern=pattern)
    for _ in range(50):
        run = next(stream)
        assert put_all(together, run) == put_each(alone, run) == []
    assert state_of(together) == state_of(alone)
    assert together.statistics == alone.statistics


def test_rows_of_a_run_say_which_records_are_new() -> None:
    with a_disk() as disk:
        file, _ = disk.open()
        for store in (MemoryStore(), file):
            store.put("5", Record("5", b"", "t"))
            run = SowRecordBatch("t", [5, 6, 6, 7], [b"a", b"b", b"c", b"d"], range(1, 5), 1)
            put = store.put_batch(run, 0)
            assert put.problem is None
            assert list(put.rows) == [0, 1, 1, 2]
            assert list(put.added_rows) == [1, 2]
        file.close()


def test_a_run_in_a_file_that_has_lost_its_content_is_refused() -> None:
    with a_disk() as disk:
        store, _ = disk.open(slab_size=1 << 16)
        run = next(runs(1))
        put_all(store, run)
        (disk.directory / "t.sow").write_bytes(b"")
        put = store.put_batch(
            SowRecordBatch("t", [1] * 50, [bytes(1000)] * 50, range(50, 100), 1), 0
        )
        assert (put.end, put.rows) == (0, [])
        assert "truncated or overwritten" in str(put.problem)
        store.close()


def test_a_correlation_id_that_is_too_long_is_refused_by_itself() -> None:
    with a_disk() as disk:
        store, _ = disk.open(slab_size=1 << 20)
        marks = ["", "x" * 0xFFFF, "y" * 0x10000, "z"]
        bodies = [b"a", b"b", b"c", b"d"]
        run = SowRecordBatch("t", [1, 2, 3, 4], bodies, range(1, 5), 1, correlation_ids=marks)
        with pytest.raises(RecordTooLargeError, match="correlation id"):
            store.ensure_space_for_batch(run)
        assert put_all(store, run) == [2]
        assert {one.correlation_id for one in state_of(store).values()} == {"", marks[1], "z"}
        store.close()


@settings(deadline=None, max_examples=examples(20, 5))
@given(seed=st.integers(0, 10**6), pattern=st.booleans())
def test_room_that_has_been_made_for_a_run_is_there(*, seed: int, pattern: bool) -> None:
    """Whatever texts it has: the file does not grow any more."""
    source = random.Random(seed)
    with a_disk() as disk:
        store, _ = disk.open(slab_size=1 << 16, pattern=pattern)
        stream = runs(seed, pattern=pattern)
        for _ in range(20):
            run = next(stream)
            if source.random() < 0.5:
                run = replaced(run, correlation_ids=["\U0001f600" * 200] * len(run.bodies))
            if source.random() < 0.5 and pattern:
                run = replaced(run, topic=["\U0001f600" * 200] * len(run.bodies))
            store.ensure_space_for_batch(run)
            slabs = store.statistics.slabs
            with cleaning_paused([store]):
                assert store.put_batch(run, 0).end == len(run.bodies)
                assert store.statistics.slabs == slabs
        store.close()


@settings(deadline=None, max_examples=examples(20, 5))
@given(seed=st.integers(0, 10**6))
def test_room_for_a_run_is_room_for_the_past_states_that_it_ends(seed: int) -> None:
    """Of every message, though several are for one key; old states go meanwhile."""
    with a_disk() as disk:
        store, _ = disk.open(slab_size=1 << 16)
        table = make_topic(topic_spec("/id", name="t", history=(200, 0)), store).table
        alone = make_topic(topic_spec("/id", name="t", history=(200, 0))).table
        stream = runs(seed)
        for _ in range(20):
            run = next(stream)
            table.ensure_space_for_batch(run)
            slabs = store.statistics.slabs
            with cleaning_paused([store]):
                assert table.put_batch(run, 0) == (len(run.bodies), None)
                assert store.statistics.slabs == slabs
            for position in range(len(run.bodies)):
                alone.put(run.record_at(position))
        table.trim(of_one(run.timestamp, 0), 10**6)
        alone.trim(of_one(run.timestamp, 0), 10**6)
        assert state_of(table.store) == state_of(alone.store)
        assert sorted(past for _, past in table.store.past_versions()) == sorted(
            past for _, past in alone.store.past_versions()
        )
        store.close()


# ---- bytes from a file, which may be anything


def entry(key: bytes, body: bytes = b"", kind: int = 1, topic: bytes = b"") -> bytes:
    length = ENTRY.size + len(topic) + len(key) + len(body)
    fields = (length, 1, kind, len(topic), len(key), 0, 0, 5, 6, 7, 0)
    data = ENTRY.pack(0, *fields)[4:] + topic + key + body
    checksum: int = crc32c(data)
    return (checksum.to_bytes(4, "little") + data).ljust((length + 7) & -8, b"\0")


@settings(max_examples=examples(300, 20))
@given(data=st.data())
def test_cleaning_believes_nothing_that_it_reads(data: st.DataObject) -> None:
    """Whatever is in a slab, it stays within the slab, and writes only where it may."""
    whole = [
        entry(b"7", bytes(data.draw(st.integers(0, 30)))),
        entry(b"7", b"x", topic=b"other"),
        entry(b"\xff8", kind=2),
        entry(b"", kind=5),
        entry(b"9", b"y" * 20, kind=3),
    ]
    parts = data.draw(st.lists(st.sampled_from(whole) | st.binary(max_size=80), max_size=6))
    slab = spoiled(data, parts)
    target = bytearray(data.draw(st.integers(0, 200)))
    start = data.draw(st.integers(0, 4)) * 8
    locations = array("q", [1000, 1000 + 64])
    rows = {"7": 0, "other\x007": 1, "t\x007": 1}
    topic = data.draw(st.sampled_from([None, "t"]))
    position, to = clean(
        MapGuard(), slab, 0, len(slab), 1 << 20, 1000, rows, locations, topic, target, start, 0, 9
    )
    assert position % 8 == 0
    assert to == start or to <= len(target)
    assert target[:start] == bytes(len(target[:start]))
    assert target[to:] == bytes(len(target[to:]))
    for location in locations:
        assert location in (1000, 1064) or start <= location < to


def test_entries_are_not_written_outside_of_a_slab() -> None:
    run = SowRecordBatch("t", [1, 2], [b"a" * 40, b"b"], range(1, 3), 1)
    slab = bytearray(200)
    for position, limit in ((-8, 200), (4, 200), (0, 201)):
        with pytest.raises(ValueError, match="within their slab"):
            write_batch(slab, position, limit, 1, run, 0, "t")
    assert slab == bytes(200)
    assert list(write_batch(slab, 64, 64 + 103, 1, run, 0, "t")) == []
    assert list(write_batch(slab, 64, 64 + 104, 1, run, 0, "t")) == [104]
    assert list(write_batch(slab, 0, 64, 1, run, 1, "t")) == [64]
    assert list(write_batch(slab, 0, 64, 1, run, 2, "t")) == []
    topics = replaced(run, topic=["t", "caf\u00e9"])
    assert list(write_batch(slab, 0, 200, 1, topics, 0, "t")) == [104, 64]
    assert list(write_batch(slab, 0, 200, 1, topics, 0, "s")) == [104, 64]
    assert list(write_batch(slab, 0, 64 + 63, 1, topics, 1, "t")) == [64]
    for wrong in (
        replaced(run, keys=[1]),
        replaced(run, correlation_ids=["", "x", "y"]),
        replaced(run, topic=["t"]),
    ):
        with pytest.raises(ValueError, match="as many keys"):
            write_batch(slab, 0, 200, 1, wrong, 0, "t")
    with pytest.raises(ValueError, match="as many keys"):
        index_batch({}, array("q"), array("I"), [], run.part(0, 1), 0, 0, array("I", [8, 8]))
    with pytest.raises(ValueError, match="as many topics"):
        index_batch(
            {}, array("q"), array("I"), [], replaced(run, topic=["t"]), 0, 0, array("I", [8])
        )
