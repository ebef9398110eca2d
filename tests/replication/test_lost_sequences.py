"""What a destination finds out of entries that a source has left out for good."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from server.replication.core import BatchColumns, SharedProperties
from server.replication.core.columns import ConstantColumn
from server.replication.core.dedup_window import DedupWindow
from server.replication.core.lost_sequences import MAX_UNKNOWN_ENTRIES, LostSequences
from server.storage.journal import JournalEntryKind, JournalOrigin
from server.storage.journal.publisher_table import server_made_identity
from tests.replication.basics import ORDERS

CLIENT = 7
HIGHEST = 10


def run(*numbers: int, first: int = 100, client: int = CLIENT, hash_: int = 0) -> BatchColumns:
    """Entries of one publisher, behind one another in the source's log."""
    count = len(numbers)
    none = ConstantColumn(0, count)
    return BatchColumns(
        [SharedProperties(ORDERS, JournalOrigin())],
        none,
        range(first, first + count),
        ConstantColumn(client, count),
        numbers,
        ConstantColumn(hash_, count),
        ConstantColumn(JournalEntryKind.PUBLISH, count),
        none,
        none,
        none,
        [b""] * count,
    )


def told(lost: LostSequences) -> list[tuple[int, int]]:
    """What is noted, in order."""
    found: list[tuple[int, int]] = []

    def take(client: int, ranges: Sequence[tuple[int, int]]) -> bool:
        assert client == CLIENT
        found.extend(ranges)
        return True

    assert lost.record_pending(take)
    return sorted(found)


@pytest.fixture
def lost() -> LostSequences:
    return LostSequences(DedupWindow(lambda client: HIGHEST if client == CLIENT else 0))


def test_what_the_source_says_is_noted_once(lost: LostSequences) -> None:
    lost.add_skipped([(CLIENT, 12), (CLIENT, 15)], [(99, 100)], 0)
    lost.detect_gaps(run(11, 20), "A")
    assert told(lost) == [(12, 12), (15, 15)]
    assert told(lost) == []


def test_what_cannot_be_noted_is_noted_later(lost: LostSequences) -> None:
    lost.add_skipped([(CLIENT, 12)], [(99, 99)], 0)
    assert not lost.record_pending(lambda *_: False)
    assert told(lost) == [(12, 12)]


@pytest.mark.parametrize(
    ("unknown", "numbers", "expected"),
    [
        (0, (11, 13), []),
        (1, (11, 12, 13), []),
        (1, (11, 13), [(12, 12)]),  # behind one that was sent with it
        (1, (12,), [(11, 11)]),
        (2, (100,), [(11, 12), (98, 99)]),  # a publisher that skips numbers of its own accord
        (60, (100,), [(11, 99)]),
        (
            1 << 40,
            (1 << 50,),
            [(11, 10 + MAX_UNKNOWN_ENTRIES), ((1 << 50) - MAX_UNKNOWN_ENTRIES, (1 << 50) - 1)],
        ),
    ],
)
def test_what_is_skipped_may_be_lost(
    lost: LostSequences, unknown: int, numbers: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    lost.add_skipped((), [(101, 110)] if unknown else (), unknown)
    lost.detect_gaps(run(*numbers), "A")
    assert told(lost) == expected


def test_who_has_gone_on_behind_it_lacks_nothing_more(lost: LostSequences) -> None:
    lost.add_skipped((), [(105, 105)], 1)
    lost.detect_gaps(run(12, first=106), "A")
    assert told(lost) == [(11, 11)]
    lost.detect_gaps(run(20, first=107), "A")
    assert told(lost) == []
    lost.add_skipped((), [(105, 105), (108, 108)], 1)
    lost.detect_gaps(run(22, first=109), "A")
    assert told(lost) == [(11, 12), (20, 21)]  # the highest number is what the log has


def test_publishers_without_numbers_skip_nothing(lost: LostSequences) -> None:
    lost.add_skipped((), [(105, 105)], 1)
    identity = server_made_identity(CLIENT, "A")
    lost.detect_gaps(run(1 << 40, client=identity, hash_=CLIENT), "A")
    assert told(lost) == []
