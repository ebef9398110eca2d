"""What the log has is what comes: entries packed in C, and what they say when they are unpacked."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given

from server.replication.core import Batch, Columns, Name, Routes, Same, TopicRoute
from server.replication.core.forwarding_table import Ways, packed
from server.replication.core.routes import Way
from server.storage.journal import Kind, Origin, Topic
from server.storage.journal.format.layout import Row, crc32c
from server.storage.journal.format.records import Names, no_names
from tests.replication import batches
from tests.replication.batches import together
from tests.replication.memory import passage_of

SECOND = 1_000_000
NOW = 1_750_000_000 * SECOND
TOPICS = [Topic("json", "orders"), Topic("json", "Aufträge"), Topic("json", "elsewhere")]
ORIGINS = [Origin(), Origin("user", "A@North"), Origin("user", "A,B"), Origin("else", "")]
WAY = Way(Routes([TopicRoute("json", "orders"), TopicRoute("json", "Aufträge")], [".*"]), "B")

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
    kind: Kind
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
    kind=st.sampled_from([Kind.PUBLISH, Kind.SOW_DELETE]),
    body=bodies,
    extras_length=st.sampled_from([0, 0, 2]),
)


def log_of(entries: list[Drawn]) -> tuple[list[Row], list[bytes], Names]:
    names = no_names()
    names.topics.update(enumerate(TOPICS, 1))
    names.origins.update(enumerate(ORIGINS[1:], 1))
    rows: list[Row] = []
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


def run_of(row: Row, data: bytes) -> Columns:
    """What is to come of an entry."""
    txid, recorded, client, sequence, source_txid, _, sow_key = row[:7]
    topic, origin = TOPICS[row[10] - 1], ORIGINS[row[11]]
    if not origin.path and sequence != txid:
        source_txid = txid  # it was published here, with a number
    lifetime = row[12] and max(row[12] - max(NOW - recorded, 0) // SECOND, 1)
    return Columns(
        [Name(topic, origin, row[9])],
        Same(0, 1),
        Same(txid, 1),
        Same(client, 1),
        Same(sequence, 1),
        Same(source_txid, 1),
        Same(row[14], 1),
        Same(sow_key, 1),
        Same(lifetime, 1),
        [row[13]],
        [data],
    )


def one_by_one(columns: Columns | None) -> list[tuple[object, ...]]:
    if columns is None:
        return []
    names = [columns.name(place) for place in range(len(columns.data))]
    return list(zip(names, *columns[2:], strict=True))


@given(st.lists(drawn, max_size=40) | st.builds(lambda one: [one] * 30, drawn))
def test_what_goes_comes_as_it_is_in_the_log(entries: list[Drawn]) -> None:
    rows, data, names = log_of(entries)
    going = [
        (row, body)
        for row, body in zip(rows, data, strict=True)
        if TOPICS[row[10] - 1].name != "elsewhere" and "B" not in ORIGINS[row[11]].path
    ]
    sent = packed(999, 5000, passage_of(rows, data, names), Ways(names, WAY, all_go=False), NOW)
    expected = Batch(999, 5000, together(*(run_of(row, body) for row, body in going)))
    came = batches.received(sent)
    assert (came.after, came.upto) == (999, 5000)
    assert one_by_one(came.columns) == one_by_one(expected.columns)
    assert sent == batches.packed(expected)


def test_entries_come_in_the_order_of_the_log_and_what_is_common_is_said_once() -> None:
    one = Drawn(0, 0, 7, 1, True, 0, 0, 0, 0, 0, Kind.PUBLISH, b"{}", 0)
    other = one._replace(topic=1)
    rows, data, names = log_of([one] * 3 + [other, one, other] + [one] * 2)
    sent = packed(999, 5000, passage_of(rows, data, names), Ways(names, WAY, all_go=False), NOW)
    columns = batches.received(sent).columns
    assert columns is not None
    orders, others = Name(TOPICS[0], ORIGINS[0]), Name(TOPICS[1], ORIGINS[0])
    came = [columns.name(place) for place in range(8)]
    assert came == [orders] * 3 + [others, orders, others] + [orders] * 2
    assert list(columns.names) == [orders, others]
    assert columns.txids == range(1001, 1009)
    assert columns.clients == Same(7, 8)
