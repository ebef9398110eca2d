"""What a log knows of numbers that were refused: kept until it is heard, and found again."""

from __future__ import annotations

import pytest

from server.storage.journal import GapRecord, SequenceGaps, decode_note, encode_note
from server.storage.journal.publisher_table import PublisherTable, pack_clients, unpack_clients

CLIENT = 7


def test_what_nothing_is_recorded_behind_is_not_missing() -> None:
    missing = SequenceGaps()
    for number in (4, 5, 7, 9):
        missing.add_refused(CLIENT, number)
    assert missing.refused_before(CLIENT, 8) == [(4, 5), (7, 7)]
    missing.apply_record(CLIENT, GapRecord(missing=[(4, 5), (7, 7)]))
    missing.remove_recorded(CLIENT, 8, 8)
    assert missing.missing_up_to(CLIENT, 100) == [(4, 5), (7, 7)]
    assert missing.refused_before(CLIENT, 100) == [(9, 9)]
    missing.drop_refused(CLIENT)
    assert not missing.refused_ranges
    assert missing.missing_up_to(CLIENT, 4) == [(4, 4)]


def test_what_comes_or_is_heard_of_is_missing_no_more() -> None:
    missing = SequenceGaps([(CLIENT, 1, 10)])
    missing.remove_recorded(CLIENT, 5, 5)
    missing.apply_record(
        CLIENT, decode_note(encode_note(GapRecord(announced=[(1, 2)], present_here=[(8, 10)])))
    )
    assert list(missing.rows()) == [(CLIENT, 3, 4), (CLIENT, 6, 7)]
    assert [number for number in range(12) if missing.is_missing(CLIENT, number)] == [3, 4, 6, 7]
    missing.apply_record(
        CLIENT, GapRecord(present_here=[(3, 3)]), is_own=False
    )  # it is at another instance
    assert missing.is_missing(CLIENT, 3)
    missing.apply_record(CLIENT, GapRecord(announced=[(3, 7)]), is_own=False)
    assert not missing.missing_ranges


@pytest.mark.parametrize("step", [1, 2])
def test_nothing_is_forgotten_when_it_is_too_much(step: int) -> None:
    """Neither ranges nor numbers: instead, nothing more may be recorded."""
    missing = SequenceGaps(max_ranges=3, max_sequences=5)
    for number in range(1, 20, step):
        missing.add_refused(CLIENT, number)
    assert missing.is_over_limit(CLIENT)
    assert not missing.is_over_limit(CLIENT + 1)
    missing.drop_refused(CLIENT)
    assert not missing.is_over_limit(CLIENT)


def test_the_table_of_publishers_has_it() -> None:
    cache = PublisherTable(5, {CLIENT: (9, 1)}, [(CLIENT, 2, 3), (CLIENT, 8, 8)])
    assert unpack_clients(pack_clients(cache, 0)) == cache
