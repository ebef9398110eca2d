"""What the log says of records is the same whether it is applied in runs or entry by entry."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import eq
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import EntryColumns, Journal, JournalEntryKind
from server.storage.journal.format.layout import PAGE, RECORD_SIZE
from server.storage.sow.file_store import FileStore
from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS
from server.storage.sow.keys.key_source import PublisherKeys
from server.storage.sow.log_apply import apply_entry
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.records import Record
from server.storage.sow.recovery import SowRollback, recover_records
from server.storage.sow.store import PastVersion
from server.storage.sow.topic_records import SowTopicRecords
from tests.storage.journal.support import START, Bench
from tests.storage.sow.forks import forked_writer
from tests.storage.sow.support import SECOND, Disk, make_topic, topic_spec
from tests.support.chances import examples

SIDE: Final = (("side",),)
FIELDS: Final = (("side",), ("n",))
SPECS: Final = {
    "orders": topic_spec("/id", name="orders", hash_indexes=(("/side",),), expiration_enabled=True),
    "transient": topic_spec("/id", name="transient", hash_indexes=(("/side",),)),
    "dated": topic_spec("/id", name="dated", history=(3600 * SECOND, 0)),
    "given": topic_spec(name="given"),
    "many": topic_spec("/id", name="many", pattern="^many-.*"),
    "enriched": topic_spec("/id", name="enriched", enrichment=("/n + 1 AS /m",)),
}
IN_FILES: Final = ("orders", "given", "many", "enriched")
NAMES: Final = ("orders", "transient", "dated", "given", "many-1", "many-2", "enriched", "loose")
CLIENTS: Final = (7, 8, 2**64 - 1)
KEYS: Final = (1, 12, 345, 2**63, 2**64 - 1)
FAR: Final = 1 << 62


# ---- logs


class Author:
    """Appends entries of all kinds to a log, the same for the same seed."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self._bench = bench
        self._source = random.Random(seed)
        self._sequences = dict.fromkeys(CLIENTS, 0)

    def write(self, count: int, names: Sequence[str] = NAMES) -> None:
        """Append so many entries, or some more."""
        source, journal = self._source, self._bench.journal
        end = journal.last_txid + count
        while journal.last_txid < end:
            self._bench.clock.now += source.choice((0, 0, 1, 1_000_000))
            name = source.choice(names)
            write = source.choice((self._run, self._run, self._copies, self._one, self._other))
            write(name)
        assert journal.commit()

    def _body(self) -> bytes:
        source = self._source
        fields = {
            "id": source.randrange(20),
            "side": source.choice(("buy", "sell", None, 5)),
            "n": source.randrange(9),
            "pad": "x" * source.choice((0, 3, 300)),
        }
        return json.dumps(fields).encode()

    def _numbers(self, client: int, count: int) -> list[int]:
        first = self._sequences[client] + 1
        self._sequences[client] += count
        return list(range(first, first + count))

    def _run(self, name: str) -> None:
        """What one publisher publishes in a row."""
        source, journal = self._source, self._bench.journal
        client, count = source.choice(CLIENTS), source.choice((1, 3, 4, 5, 40))
        bodies = [self._body() for _ in range(count)]
        numbers = self._numbers(client, count) if source.random() < 0.8 else []
        keys = source.choices(KEYS, k=count) if source.random() < 0.9 else []
        lifetime, place = source.choice((0, 0, 100)), 0
        while place < count:
            place = journal.append_batch(
                {0: (journal.topic_handle("json", name), None)},
                0,
                client,
                numbers,
                bodies,
                place,
                keys,
                lifetime,
            ).end

    def _copies(self, name: str) -> None:
        """What comes from another instance: much of it late, by several publishers."""
        source, journal = self._source, self._bench.journal
        count, place = source.choice((1, 6, 30)), 0
        clients = source.choices(CLIENTS, k=count)
        known = max(self._sequences.values()) + count
        handles = {
            number: (journal.topic_handle("json", name), journal.origin_handle(user, "other"))
            for number, user in enumerate(("", "user"))
        }
        content = EntryColumns(
            source.choices((0, 1), k=count),
            clients,
            [source.randrange(1, known + 2) for _ in range(count)],
            0,
            99,
            JournalEntryKind.PUBLISH,
            source.choices(KEYS, k=count),
            source.choices((0, 5, 2**32 - 1), k=count),
            0,
            (),
            [self._body() for _ in range(count)],
        )
        while place < count:
            place = journal.append_copies(handles, content, place).end

    def _one(self, name: str) -> None:
        """A message with whatever a message may have."""
        source, client = self._source, self._source.choice(CLIENTS)
        self._bench.journal.append(
            self._bench.journal.topic_handle("json", name),
            client,
            source.choice((0, *self._numbers(client, 1))),
            self._body(),
            source.choice((JournalEntryKind.PUBLISH, JournalEntryKind.DELTA_PUBLISH)),
            source.choice((0, *KEYS)),
            source.choice((0, 60)),
            correlation_id=source.choice((b"", b"", b"mark\xff")),
            given_key=source.choice((b"", b"", b"", b"text", b"12")) if name == "given" else b"",
        )

    def _other(self, name: str) -> None:
        """A deletion, or what has nothing to do with records."""
        source, journal = self._source, self._bench.journal
        kind = source.choice(
            (
                JournalEntryKind.SOW_DELETE,
                JournalEntryKind.SOW_DELETE,
                JournalEntryKind.QUEUE_EVENT,
                JournalEntryKind.NO_OP,
            )
        )
        keys = [str(key) for key in source.sample(KEYS, 2)] + source.choice(([], ["text"]))
        topic = journal.topic_handle("json", name)
        journal.append(topic, source.choice(CLIENTS), 0, json.dumps(keys).encode(), kind)


# ---- topics, in a directory


class Topics:
    """The topics of an instance, some of which have files in a directory."""

    def __init__(self, directory: Path, **changes: object) -> None:
        directory.mkdir(exist_ok=True)
        self.disk = Disk(directory)
        self.topics: dict[str, SowTopicRecords] = {}
        for name, spec in SPECS.items():
            store: FileStore | MemoryStore = MemoryStore()
            if name in IN_FILES:
                store, recovery = self.disk.open(
                    name=f"{name}.sow", topic=name, pattern=spec.pattern is not None
                )
                assert recovery.damage is None  # a kill may leave an entry unfinished
            # The keys in the log are none that fields make: such records would get others.
            self.topics[name] = make_topic(replace(spec, **changes), store, PublisherKeys())  # type: ignore[arg-type]  # of any fields

    def find(self, message_type: str, name: str) -> SowTopicRecords | None:
        assert message_type == "json"
        found = (topic for topic in self.topics.values() if topic.covers_topic(name))
        return next(found, None)

    def recover(
        self, journal: Journal, check: Callable[[], None] = lambda: None
    ) -> list[SowRollback]:
        """As a start does it."""
        told: list[SowRollback] = []
        recover_records(
            journal, self.topics.values(), self.find, self.disk.settle, check, told.append
        )
        return told

    def recover_each(self, journal: Journal) -> None:
        """What that comes to: each topic gets the entries after those that it has, one by one."""
        behind = {sow: sow.table.store.last_sequence for sow in self.topics.values()}
        points = {sow: sow.spec.recovery_point for sow in self.topics.values()}
        for entry in journal.entries():
            sow = self.find(entry.topic.message_type, entry.topic.name)
            if sow is None or entry.txid <= behind[sow]:
                continue
            point = points[sow]
            if not isinstance(point, int) or behind[sow] or entry.timestamp >= point // 1000:
                apply_entry(sow, entry)

    def close(self) -> None:
        self.disk.settle()
        for topic in self.topics.values():
            topic.table.store.close()
        self.disk.close()


class State(NamedTuple):
    """All that can be seen of a topic, but for rows: these depend on what a file has cleaned."""

    records: dict[str, Record]
    past: list[PastVersion]
    last_sequence: int
    stored_bytes: int
    rows: Counter[int]
    logical: dict[str, set[str]]
    found: dict[str, set[str]]
    next_expiry: int | None
    values: dict[str, list[object]]


def state_of(sow: SowTopicRecords) -> State:
    """What a topic is."""
    table, store = sow.table, sow.table.store
    identities = {row: identity for identity, row in store.identities()}
    logical, found = {}, {}
    for name in NAMES:
        there = table.row_mask(partial(eq, name), None, FAR)
        logical[name] = {identities[row] for row in np.flatnonzero(there).tolist()}
    for text in ("buy", "sell", "5"):
        candidates = table.ensure_hash_index(SIDE).find_candidates(((text,),))
        found[text] = {identities[row] for row in candidates}
    values: dict[str, list[object]] = {identity: [] for identity in identities.values()}
    for block in range((store.row_capacity + MEMO_BLOCK_ROWS - 1) // MEMO_BLOCK_ROWS):
        for column in table.memo_indexes.load_columns(block, FIELDS):
            for row, value in enumerate(column.to_values(), block * MEMO_BLOCK_ROWS):
                if row in identities:
                    values[identities[row]].append(value)
    return State(
        {identity: store.read_record(row) for identity, row in store.identities()},
        sorted((past for _, past in store.past_versions()), key=repr),
        store.last_sequence,
        store.statistics.stored_bytes,
        Counter(table.row_states),
        logical,
        found,
        sow.next_expiry(),
        values,
    )


def states_of(topics: Topics) -> dict[str, State]:
    return {name: state_of(topic) for name, topic in topics.topics.items()}


def counters_of(topics: Topics) -> dict[str, tuple[int, int]]:
    """Replaced and deleted records since the start."""
    return {
        name: (topic.table.updates, topic.table.deletes) for name, topic in topics.topics.items()
    }


def expired_of(topics: Topics) -> dict[str, list[Record]]:
    """The records that expire, in that order; they are gone then."""
    found: dict[str, list[Record]] = {}
    for name, topic in topics.topics.items():
        while (change := topic.expire(FAR, topic.table.store.last_sequence)) is not None:
            assert change.previous is not None
            found.setdefault(name, []).append(change.previous)
    for records in found.values():
        moments = [record.expires for record in records]
        assert moments == sorted(moments)
        records.sort(key=lambda record: (record.expires, record.key))  # rows decide between equals
    return found


def assert_alike(together: Topics, alone: Topics) -> None:
    assert states_of(together) == states_of(alone)
    assert counters_of(together) == counters_of(alone)


# ---- tests


@settings(deadline=None, max_examples=examples(25, 4))
@given(
    seed=st.integers(0, 10**6),
    point=st.sampled_from(["epoch", (START + 1_500_000) * 1000]),
    names=st.sampled_from([NAMES, NAMES[:-2], ("orders",), ("transient", "given", "many-1")]),
)
def test_runs_leave_what_the_entries_leave_one_by_one(
    seed: int, point: str | int, names: Sequence[str]
) -> None:
    """In several starts, each of which finds files as a kill has left them, and more in the log."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as where:
        root = Path(where)
        bench = Bench(root / "journal")
        author = Author(bench, seed)
        places = root / "together", root / "alone"
        for start in range(3):
            author.write(source.choice((1, 60, 1500)), names)
            together, alone = (Topics(place, recovery_point=point) for place in places)
            assert together.recover(bench.journal) == []
            alone.recover_each(bench.journal)
            assert_alike(together, alone)
            killed = tuple(root / f"{start}-{place.name}" for place in places)
            for place, copy in zip(places, killed, strict=True):
                shutil.copytree(place, copy)
            assert expired_of(together) == expired_of(alone)
            together.close()
            alone.close()
            places = killed[0], killed[1]
        bench.journal.close()


class _EndedError(Exception):
    """A start has been ended by somebody."""


@pytest.mark.parametrize("seed", range(4))
def test_a_start_that_is_ended_is_taken_up_by_the_next_one(tmp_path: Path, seed: int) -> None:
    bench = Bench(tmp_path / "journal", file_size=8 << 20)
    Author(bench, seed).write(9000)
    left = seed

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _EndedError

    together, alone = Topics(tmp_path / "together"), Topics(tmp_path / "alone")
    with pytest.raises(_EndedError):
        together.recover(bench.journal, check)
    together.close()
    together = Topics(tmp_path / "together")
    together.recover(bench.journal)
    alone.recover_each(bench.journal)
    assert states_of(together) == states_of(alone)
    together.close()
    alone.close()
    bench.journal.close()


def child(directory: str, output: int) -> None:
    """Recover, and say when that begins; until killed."""
    root = Path(directory)
    bench = Bench(root / "journal", file_size=8 << 20)
    topics = Topics(root / "together")
    os.write(output, b"begins\n")
    topics.recover(bench.journal)
    os.write(output, b"ends\n")
    time.sleep(60)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_recovery_goes_on_where_it_was(tmp_path: Path, seed: int) -> None:
    """In the midst of a run, too."""
    source = random.Random(seed)
    bench = Bench(tmp_path / "journal", file_size=8 << 20)
    Author(bench, seed).write(20_000, ("orders", "given"))
    bench.journal.close()
    for _ in range(3):
        with forked_writer(child, str(tmp_path)) as (_, output):
            assert output.readline() == b"begins\n"
            time.sleep(source.random() * 0.04)
    bench = Bench(tmp_path / "journal", file_size=8 << 20)
    together, alone = Topics(tmp_path / "together"), Topics(tmp_path / "alone")
    assert together.recover(bench.journal) == []
    alone.recover_each(bench.journal)
    assert states_of(together) == states_of(alone)
    together.close()
    alone.close()
    bench.journal.close()


@pytest.mark.parametrize("seed", range(6))
def test_damaged_entries_are_left_out_and_told(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    bench = Bench(tmp_path / "journal")
    Author(bench, seed).write(1500)
    (file,) = bench.journal.files
    bench.journal.close()
    content = bytearray(file.path.read_bytes())
    count = bench.journal.last_txid - file.first_txid + 1
    bodies = content.rstrip(b"\0").index(b'{"id"'), PAGE + count * 100
    for _ in range(8):
        content[source.randrange(*bodies)] ^= 1 << source.randrange(8)
        content[-source.randrange(1, RECORD_SIZE * count // 2)] ^= 1 << source.randrange(8)
    file.path.write_bytes(content)
    states, told = [], []
    for name in ("together", "alone"):
        bench = Bench(tmp_path / "journal")
        topics = Topics(tmp_path / name)
        if name == "together":
            topics.recover(bench.journal)
        else:
            topics.recover_each(bench.journal)
        states.append((states_of(topics), counters_of(topics)))
        told.append({notice.txid for notice in bench.notices if notice.event.name == "DAMAGED"})
        topics.close()
        bench.journal.close()
    assert states[0] == states[1]
    assert set() != told[0] <= told[1]  # those in a row are told of once
