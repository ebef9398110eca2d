"""What the log has is what comes: entries packed in C, and what they say when they are unpacked."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given

from server.replication.core import (
    BatchColumns,
    ConstantColumn,
    ReplicationBatch,
    Routes,
    SharedProperties,
    TopicRoute,
)
from server.replication.core.forwarding_table import ForwardingTable, pack_range
from server.replication.core.routes import LinkRoute
from server.storage.journal import JournalEntryKind, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import EntryRow, crc32c
from server.storage.journal.format.records import FileDefinitions, make_file_definitions
from tests.replication import batches
from tests.replication.batches import together
from tests.replication.memory import passage_of

SECOND = 1_000_000
NOW = 1_750_000_000 * SECOND
TOPICS = [
    JournalTopic("json", "orders"),
    JournalTopic("json", "Aufträge"),
    JournalTopic("json", "elsewhere"),
]
ORIGINS = [
    JournalOrigin(),
    JournalOrigin("user", "A@North"),
    JournalOrigin("user", "A,B"),
    JournalOrigin("else", ""),
]
WAY = LinkRoute(Routes([TopicRoute("json", "orders"), TopicRoute("json", "Aufträge")], [".*"]), "B")

u64 = st.sampled_from([0, 1, 255, 256, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1])
bodies = st.sampled_from([b"", b"{}", b"x" * 300, b"y" * 70_000])


class Drawn(NamedTuple):
    """An entry, but for what follows from those before it."""

    skipped: int
    age: int
    client: int
    sequence: int
    is_numbered: bool
    source_txid: int
    sow_key: int
    topic: int
    origin: int
    expiration: int
    kind: JournalEntryKind
    body: bytes
    extras_length: int


drawn = st.builds(
    Drawn,
    skipped=st.sampled_from([0, 0, 0, 5]),
    age=st.sampled_from([-SECOND, 0, 3 * SECOND, 90 * SECOND]),
    client=u64,
    sequence=st.sampled_from([1, 2, 300, (1 << 64) - 1]),
    is_numbered=st.booleans(),
    source_txid=u64,
    sow_key=u64,
    topic=st.sampled_from([0, 0, 1, 2]),
    origin=st.sampled_from([0, 0, 1, 2, 3]),
    expiration=st.sampled_from([0, 0, 4, 60, (1 << 32) - 1]),
    kind=st.sampled_from([JournalEntryKind.PUBLISH, JournalEntryKind.SOW_DELETE]),
    body=bodies,
    extras_length=st.sampled_from([0, 0, 2]),
)


def log_of(entries: list[Drawn]) -> tuple[list[EntryRow], list[bytes], FileDefinitions]:
    names = make_file_definitions()
    names.topics.update(enumerate(TOPICS, 1))
    names.origins.update(enumerate(ORIGINS[1:], 1))
    rows: list[EntryRow] = []
    data = []
    txid = 1000
    for one in entries:
        txid += 1 + one.skipped
        body = one.body + b"e" * one.extras_length
        sequence = one.sequence if one.is_numbered else txid
        rows.append(
            (
                *(txid, NOW - one.age, one.client, sequence, one.source_txid, 0, one.sow_key, 0),
                *(len(one.body), one.extras_length, one.topic + 1, one.origin, one.expiration),
                *(crc32c(body), one.kind, 0, 0, 0),
            )
        )
        data.append(body)
    return rows, data, names


def run_of(row: EntryRow, data: bytes) -> BatchColumns:
    """What is to come of an entry."""
    txid, recorded, client, sequence, source_txid, _, sow_key = row[:7]
    topic, origin = TOPICS[row[10] - 1], ORIGINS[row[11]]
    if not origin.path and sequence != txid:
        source_txid = txid  # it was published here, with a number
    lifetime = row[12] and max(row[12] - max(NOW - recorded, 0) // SECOND, 1)
    return BatchColumns(
        [SharedProperties(topic, origin, row[9])],
        ConstantColumn(0, 1),
        ConstantColumn(txid, 1),
        ConstantColumn(client, 1),
        ConstantColumn(sequence, 1),
        ConstantColumn(source_txid, 1),
        ConstantColumn(row[14], 1),
        ConstantColumn(sow_key, 1),
        ConstantColumn(lifetime, 1),
        [row[13]],
        [data],
    )


def one_by_one(columns: BatchColumns | None) -> list[tuple[object, ...]]:
    if columns is None:
        return []
    names = [columns.properties_of(place) for place in range(len(columns.data))]
    return list(zip(names, *columns[2:], strict=True))


@given(st.lists(drawn, max_size=40) | st.builds(lambda one: [one] * 30, drawn))
def test_what_goes_comes_as_it_is_in_the_log(entries: list[Drawn]) -> None:
    rows, data, names = log_of(entries)
    going = [
        (row, body)
        for row, body in zip(rows, data, strict=True)
        if TOPICS[row[10] - 1].name != "elsewhere" and "B" not in ORIGINS[row[11]].path
    ]
    sent = pack_range(
        999, 5000, passage_of(rows, data, names), ForwardingTable(names, WAY, sends_all=False), NOW
    )
    expected = ReplicationBatch(999, 5000, together(*(run_of(row, body) for row, body in going)))
    came = batches.received(sent)
    assert (came.after, came.upto) == (999, 5000)
    assert one_by_one(came.columns) == one_by_one(expected.columns)
    assert sent == batches.packed(expected)


def test_entries_come_in_the_order_of_the_log_and_what_is_common_is_said_once() -> None:
    one = Drawn(0, 0, 7, 1, True, 0, 0, 0, 0, 0, JournalEntryKind.PUBLISH, b"{}", 0)
    other = one._replace(topic=1)
    rows, data, names = log_of([one] * 3 + [other, one, other] + [one] * 2)
    sent = pack_range(
        999, 5000, passage_of(rows, data, names), ForwardingTable(names, WAY, sends_all=False), NOW
    )
    columns = batches.received(sent).columns
    assert columns is not None
    orders, others = (
        SharedProperties(TOPICS[0], ORIGINS[0]),
        SharedProperties(TOPICS[1], ORIGINS[0]),
    )
    came = [columns.properties_of(place) for place in range(8)]
    assert came == [orders] * 3 + [others, orders, others] + [orders] * 2
    assert list(columns.properties) == [orders, others]
    assert columns.txids == range(1001, 1009)
    assert columns.clients == ConstantColumn(7, 8)
