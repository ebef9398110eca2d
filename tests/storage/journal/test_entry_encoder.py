"""A block of entries is the same wherever its bodies are, and what each entry says is as given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_slices import FrameSlices
from server.storage.journal.format.layout import RECORD, RECORD_SIZE, crc32c
from server.storage.journal.format.records import records_check
from server.storage.journal.write.blocks import AppendPosition, EntryColumns
from server.storage.journal.write.entry_encoder import count_fitting, make_block
from tests.support.frame_slices import bodies_in_stream

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=8)
BEGIN, CLIENT, SEQUENCE = 4096, 77, 9


def content(bodies: FrameSlices | list[bytes], checksums: list[int]) -> EntryColumns:
    count = len(bodies)
    sequences = range(SEQUENCE, SEQUENCE + count)
    return EntryColumns(0, CLIENT, sequences, 0, 0, 1, 0, 0, 0, checksums, bodies)


@given(BODIES)
def test_a_block_holds_what_it_is_given(bodies: list[bytes]) -> None:
    place = AppendPosition(5, 1_000, BEGIN, 1, 0, 4)
    checksums = [crc32c(body) for body in bodies]
    joined, records, end, computed = make_block(place, content(bodies, []))
    assert joined == b"".join(bodies)
    assert end == BEGIN + len(joined)
    assert list(computed) == checksums
    assert records_check(records)
    rows = list(RECORD.iter_unpack(records))[::-1]
    at = BEGIN
    for number, (row, body) in enumerate(zip(rows, bodies, strict=True)):
        assert row[:4] == (5 + number, 1_000, CLIENT, SEQUENCE + number)
        assert row[7:9] == (at, len(body))
        assert row[13] == crc32c(body)
        at += len(body)


@given(BODIES)
def test_a_block_is_the_same_wherever_its_bodies_are(bodies: list[bytes]) -> None:
    place = AppendPosition(5, 1_000, BEGIN, 1, 0, 4)
    checksums = [crc32c(body) for body in bodies]
    expected = make_block(place, content(bodies, checksums))
    for given_as in (bodies, bodies_in_stream(bodies)):
        found = make_block(place, content(given_as, []))
        assert (*found[:3], list(found[3])) == expected


@given(BODIES, st.integers(0, 1200))
def test_as_many_fit_as_there_is_room_for(bodies: list[bytes], room: int) -> None:
    expected = 0
    while expected < len(bodies):
        if sum(map(len, bodies[: expected + 1])) + RECORD_SIZE * (expected + 1) > room:
            break
        expected += 1
    assert count_fitting(bodies, room) == count_fitting(bodies_in_stream(bodies), room) == expected
