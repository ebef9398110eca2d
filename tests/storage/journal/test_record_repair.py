"""Damaged entries are named when they are left out; records are made again from what fits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from server.storage.journal import (
    EVENTS,
    DamagedEntry,
    JournalOrigin,
    JournalTopic,
    LogSpan,
    ReplacementEntry,
)
from server.storage.journal.format.layout import (
    BODY_CRC,
    BODY_START,
    EXPIRATION,
    EXTRAS_LENGTH,
    RECORD_SIZE,
)
from server.storage.journal.inspection import EntrySlot, JournalReader
from tests.storage.journal.support import Bench, opened

COUNT = 120
PUBLISHER = 7


def slots(directory: Path) -> list[EntrySlot]:
    """The messages in the only journal of a log."""
    (path,) = directory.glob("*0.journal")
    return [slot for slot in JournalReader(path).slots() if slot.entry and slot.entry.sequence]


def write_messages(bench: Bench) -> None:
    """Messages of a publisher, which goes on to the same files whenever that is done."""
    for number in range(1, COUNT + 1):
        topic = bench.journal.topic_handle("json", "even" if number % 2 == 0 else "odd")
        origin = bench.journal.origin_handle("ann") if number % 3 == 0 else None
        body = b"%d" % number * (number % 5 + 1)
        key = b"k" * (number % 4)
        bench.journal.append(topic, PUBLISHER, number, body, origin=origin, given_key=key)
    assert bench.journal.commit()


def lose_records(path: Path, offsets: Iterable[int]) -> None:
    """Overwrite records of a journal."""
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset : offset + RECORD_SIZE] = bytes(RECORD_SIZE)
    path.write_bytes(content)


@contextmanager
def damaged(
    directory: Path, records: Iterable[int] = (), bodies: Iterable[int] = ()
) -> Iterator[tuple[Bench, list[EntrySlot]]]:
    """A log of which some entries are damaged; and what they were, by number from 0."""
    with opened(directory) as bench:
        write_messages(bench)
    were = [slot for slot in slots(directory) if slot.entry and slot.entry.topic.name]
    (path,) = directory.glob("*0.journal")
    lose_records(path, [were[number].offset for number in records])
    content = bytearray(path.read_bytes())
    for number in bodies:
        row = were[number].row
        assert row is not None
        content[row[BODY_START]] ^= 1
    path.write_bytes(content)
    with opened(directory) as bench:
        yield bench, were


def account(slot: EntrySlot, **changes: Any) -> ReplacementEntry:
    """What another log says of an entry."""
    row, entry = slot.row, slot.entry
    assert row is not None
    assert entry is not None

    def pick(there: Iterable[JournalOrigin]) -> JournalOrigin | None:
        return next((one for one in there if one == entry.origin), None)

    said = ReplacementEntry(
        0,
        entry.client,
        entry.sequence,
        entry.source_txid,
        entry.source,
        entry.kind,
        entry.sow_key,
        row[EXPIRATION],
        len(entry.body),
        row[EXTRAS_LENGTH],
        row[BODY_CRC],
        entry.topic,
        pick,
    )
    return said._replace(**changes)


def content(slot: EntrySlot) -> tuple[object, ...]:
    """All of an entry."""
    one = slot.entry
    assert one is not None
    named = one.txid, one.bookmark, one.kind, one.topic, one.origin, one.source_txid, one.source
    return *named, one.body, one.sow_key, one.expiration, one.correlation_id, one.given_key


def restore(bench: Bench, accounts: list[ReplacementEntry]) -> list[int]:
    """Make records again, whichever are damaged; the txids."""
    restoring = bench.journal.record_repair
    done: dict[int, ReplacementEntry] = {}
    for gap in restoring.find_gaps(bench.journal.first_txid):
        done |= restoring.rebuild_records(gap, accounts, lambda _: False)
    return sorted(done)


def has_name(name: str, topic: JournalTopic) -> bool:
    return topic.name == name


def txids(were: list[EntrySlot], numbers: Iterable[int]) -> list[int]:
    return [slot.entry.txid for slot in (were[number] for number in numbers) if slot.entry]


@pytest.mark.parametrize("topic", ["even", "odd"])
def test_what_is_left_out_of_passages_is_named(tmp_path: Path, topic: str) -> None:
    """Of a damaged body it is known whose it is, and whether it is wanted."""
    records, bodies = (10, 11, 90), (4, 5, 41, 90, 100)
    with damaged(tmp_path, records, bodies) as (bench, were):
        cursor = bench.journal.replay(LogSpan(0), lambda one: one.name == topic, EVENTS)
        unread: list[DamagedEntry] = []
        while not cursor.is_caught_up:
            unread += cursor.read_for_forwarding(7, 100).damaged_entries
        wanted = [
            number
            for number in sorted({*records, *bodies})
            if number in records or (number % 2 == 1) == (topic == "even")
        ]
        assert [one.txid for one in unread] == txids(were, wanted)
        for one, number in zip(unread, wanted, strict=True):
            assert (one.batch is None) == (number in records)
            assert one.batch is None or one.batch.topic.name == topic


@pytest.mark.parametrize("lost", [[30], [30, 31, 32], [*range(20, 60), 70, 71, 90], [COUNT - 1]])
def test_records_are_what_they_were(tmp_path: Path, lost: list[int]) -> None:
    """Whatever order the accounts are in, and what else there is among them."""
    with damaged(tmp_path, lost) as (bench, were):
        accounts = [account(were[number]) for number in lost]
        accounts += [account(were[number], sequence=1000 + number) for number in range(5)]
        random.Random(1).shuffle(accounts)
        assert restore(bench, accounts) == txids(were, lost)
    assert [content(slot) for slot in slots(tmp_path)] == [content(slot) for slot in were]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("checksum", 1),
        ("body_length", 1),
        ("txid", 1),
        ("topic", JournalTopic("json", "another")),
        ("select_origin", lambda there: None),
    ],
    ids=["checksum", "length", "txid", "topic", "origin"],
)
def test_what_does_not_fit_is_not_believed(tmp_path: Path, field: str, value: object) -> None:
    with damaged(tmp_path, [30]) as (bench, were):
        assert restore(bench, [account(were[30], **{field: value})]) == []


def test_what_is_in_the_midst_of_a_row_needs_its_neighbours(tmp_path: Path) -> None:
    """From both ends inwards, as far as there are accounts."""
    with damaged(tmp_path, range(30, 40)) as (bench, were):
        accounts = [account(were[number]) for number in (30, 31, 35, 36, 38, 39)]
        assert restore(bench, accounts) == txids(were, [30, 31, 38, 39])
        gaps = bench.journal.record_repair.find_gaps(bench.journal.first_txid)
        assert [(gap.first, gap.last) for gap in gaps] == [tuple(txids(were, [32, 37]))]


def test_a_damaged_body_is_believed_of_the_entry_s_own_number(tmp_path: Path) -> None:
    with damaged(tmp_path, [30], [30]) as (bench, were):
        assert restore(bench, [account(were[30])]) == []
        own = txids(were, [30])
        assert restore(bench, [account(were[30], txid=own[0])]) == own
        assert [one.txid for one in bench.journal.body_repair.find_damaged_bodies(own[0])] == own


def test_indexes_that_were_made_of_damaged_records_are_made_again(tmp_path: Path) -> None:
    """Until then, whoever reads any topic comes upon what is damaged."""
    with opened(tmp_path, with_topic_index=True) as bench:
        write_messages(bench)
        filling = bench.journal.topic_handle("json", "filling")
        while len(bench.journal.files) == 1:
            bench.journal.append(filling, 8, 1, bytes(20_000))
            assert bench.journal.commit()
    were = [slot for slot in slots(tmp_path) if slot.entry and slot.entry.client == PUBLISHER]
    lost = [*range(20, 26), 50, COUNT - 1]
    (path,) = tmp_path.glob("*0.journal")
    indexes = {index: index.read_bytes() for index in tmp_path.glob("*0000000000.*index*")}
    assert len(indexes) == 2
    content = bytearray(path.read_bytes())
    for number in lost:  # what stands there then is of the next one, which has another topic
        place = were[number].offset
        content[place : place + RECORD_SIZE] = content[place - RECORD_SIZE : place]
    path.write_bytes(content)
    for index in indexes:
        index.unlink()
    with opened(tmp_path, with_topic_index=True) as bench:
        bench.journal.start()
    assert all(index.read_bytes() != before for index, before in indexes.items())
    with opened(tmp_path, with_topic_index=True) as bench:
        last = were[-1].entry
        assert last is not None
        assert bench.journal.find(PUBLISHER, last.sequence) is None
        for topic in ("even", "odd", "filling"):
            wanted = partial(has_name, topic)
            cursor = bench.journal.replay(LogSpan(0), wanted, EVENTS)
            unread: list[DamagedEntry] = []
            while not cursor.is_caught_up:
                unread += cursor.read_for_forwarding(100, 1 << 20).damaged_entries
            assert [one.txid for one in unread] == txids(were, lost)
        assert restore(bench, [account(were[number]) for number in lost]) == txids(were, lost)
        assert bench.journal.find(PUBLISHER, last.sequence) == last.txid
    assert indexes == {index: index.read_bytes() for index in indexes}
