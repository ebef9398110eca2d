"""What a log knows of numbers that were refused: kept until it is heard, and found again."""

from __future__ import annotations

import pytest

from server.storage.journal import GapRecord, SequenceGaps, decode_note, encode_note
from server.storage.journal.publisher_table import PublisherTable, pack_clients, unpack_clients

CLIENT = 7


def test_what_nothing_is_recorded_behind_is_not_missing() -> None:
    missing = SequenceGaps()
    for number in (4, 5, 7, 9):
        missing.refuse(CLIENT, number)
    assert missing.due(CLIENT, 8) == [(4, 5), (7, 7)]
    missing.take(CLIENT, GapRecord(missing=[(4, 5), (7, 7)]))
    missing.came(CLIENT, 8, 8)
    assert missing.upto(CLIENT, 100) == [(4, 5), (7, 7)]
    assert missing.due(CLIENT, 100) == [(9, 9)]
    missing.begin(CLIENT)
    assert not missing.refused
    assert missing.upto(CLIENT, 4) == [(4, 4)]


def test_what_comes_or_is_heard_of_is_missing_no_more() -> None:
    missing = SequenceGaps([(CLIENT, 1, 10)])
    missing.came(CLIENT, 5, 5)
    missing.take(CLIENT, decode_note(encode_note(GapRecord(heard=[(1, 2)], here=[(8, 10)]))))
    assert list(missing.rows()) == [(CLIENT, 3, 4), (CLIENT, 6, 7)]
    assert [number for number in range(12) if missing.lacks(CLIENT, number)] == [3, 4, 6, 7]
    missing.take(CLIENT, GapRecord(here=[(3, 3)]), is_own=False)  # it is at another instance
    assert missing.lacks(CLIENT, 3)
    missing.take(CLIENT, GapRecord(heard=[(3, 7)]), is_own=False)
    assert not missing.missing


@pytest.mark.parametrize("step", [1, 2])
def test_nothing_is_forgotten_when_it_is_too_much(step: int) -> None:
    """Neither ranges nor numbers: instead, nothing more may be recorded."""
    missing = SequenceGaps(most_ranges=3, most_numbers=5)
    for number in range(1, 20, step):
        missing.refuse(CLIENT, number)
    assert missing.is_full(CLIENT)
    assert not missing.is_full(CLIENT + 1)
    missing.begin(CLIENT)
    assert not missing.is_full(CLIENT)


def test_the_table_of_publishers_has_it() -> None:
    cache = PublisherTable(5, {CLIENT: (9, 1)}, [(CLIENT, 2, 3), (CLIENT, 8, 8)])
    assert unpack_clients(pack_clients(cache, 0)) == cache
