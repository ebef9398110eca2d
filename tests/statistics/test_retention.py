"""How statistics are thinned out as they get older."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.statistics.database import StatisticsDatabase
from server.statistics.layout import LIVES, RECORDED, SAMPLES
from server.statistics.resources import CLIENTS
from server.statistics.retention import RetentionLimits, SampleRetention, remove
from server.statistics.timestamps import from_unix
from tests.support.chances import examples

from .support import NOON, Clients, Writing, recorded

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
START: Final = from_unix(NOON)

SMALL: Final = RetentionLimits(((0, 2 * MINUTE), (MINUTE, 2 * HOUR), (HOUR, 5 * HOUR)), 1 << 40)


def thin_out(database: StatisticsDatabase, now: int, retention: RetentionLimits = SMALL) -> None:
    thinning = SampleRetention(database, retention)
    while thinning.thin_out_step(now):
        pass


def model(stamps: list[int], now: int) -> list[int]:
    """The samples that are left, by the words of the module's docstring."""
    left = sorted(stamps)
    for (_, age), (width, _) in pairwise(SMALL.tiers):
        old = (now - age) // width * width
        last = {stamp // width: stamp for stamp in left if stamp < old}
        left = sorted([*last.values(), *(stamp for stamp in left if stamp >= old)])
    return [stamp for stamp in left if stamp >= now - SMALL.tiers[2][1]]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(0, 7 * 3600), min_size=1, max_size=60, unique=True),
    st.lists(st.integers(0, 8 * 3600), min_size=1, max_size=4),
)
def test_what_is_left_is_the_last_of_each_time(offsets: list[int], looks: list[int]) -> None:
    stamps = [START + 1000 * at for at in sorted(offsets)]
    with recorded(":memory:") as writing:
        for at in sorted(offsets):
            writing.write(Clients().sample(at, {"1": at}))
        database, history = writing.recording.database, writing.recording.history
        for look in sorted(looks):
            stamps = model(stamps, START + 1000 * look)
            thin_out(database, START + 1000 * look)
            assert history.timestamps() == stamps
        found = history.values(CLIENTS, "1", "bytes_in")
        assert found == [(stamp, (stamp - START) // 1000) for stamp in stamps]
        _check_nothing_is_left_over(database, stamps)


def _check_nothing_is_left_over(database: StatisticsDatabase, stamps: list[int]) -> None:
    def column(query: str) -> list[int]:
        return [one for (one,) in database.connection.execute(query)]

    assert column(f"SELECT timestamp FROM {SAMPLES}") == stamps
    for resource in RECORDED:
        table = resource.table
        assert set(column(f"SELECT timestamp FROM {table}_DYNAMIC")) <= set(stamps)
        assert not column(
            f"SELECT static_id FROM {table}_STATIC WHERE static_id NOT IN"
            f" (SELECT static_id FROM {table}_DYNAMIC"
            f" UNION SELECT static_id FROM {LIVES} WHERE base = '{table}' AND last IS NULL)"
        )
    assert not column(
        f"SELECT static_id FROM {LIVES} WHERE last IS NOT NULL AND NOT EXISTS"
        f" (SELECT 1 FROM {SAMPLES} WHERE timestamp BETWEEN first AND last)"
    )


def test_averages_become_those_of_the_whole_time() -> None:
    clients = Clients()
    with recorded(":memory:") as writing:
        for at, count in ((40, 0), (50, 100), (60, 400), (70, 400), (99, 400)):
            writing.write(clients.sample(at, {"1": count}))
        thin_out(writing.recording.database, START + HOUR)
        values = writing.recording.history.values
        [(at, total)], [(_, rate)] = (
            values(CLIENTS, "1", name) for name in ("bytes_in", "bytes_in_per_sec")
        )
    # The tests' noon is 40 seconds before the beginning of a minute.
    assert (at, total) == (START + 99_000, 400)
    assert rate == round((0 + 10 + 30 + 0 + 0) / 5)


def test_who_lived_between_what_is_left_is_forgotten() -> None:
    clients = Clients()
    with recorded(":memory:") as writing:
        for at, present in ((40, {"1": 1}), (50, {"1": 1, "2": 2}), (60, {"1": 1})):
            writing.write(clients.sample(at, present))
        assert writing.recording.history.values(CLIENTS, "2", "bytes_in")
        thin_out(writing.recording.database, START + HOUR)
        connection = writing.recording.database.connection
        assert connection.execute("SELECT oid FROM ICLIENTS_STATIC").fetchall() == [("1",)]


def _many(writing: Writing, count: int) -> Iterator[int]:
    clients = Clients()
    present = {str(number): number for number in range(50)}
    for number in range(count):
        yield writing.write(clients.sample(10 * number, present)).timestamp


@pytest.mark.parametrize("most_bytes", [600_000, 1_000_000])
def test_a_database_that_is_too_large_is_thinned_out_earlier(most_bytes: int) -> None:
    with recorded(":memory:") as writing:
        database = writing.recording.database
        thinning = SampleRetention(database, RetentionLimits(SMALL.tiers, most_bytes))
        largest = 0
        for timestamp in _many(writing, 1000):
            while thinning.thin_out_step(timestamp):
                pass
            largest = max(largest, database.used_bytes)
        assert largest < most_bytes * 1.2
        stamps = writing.recording.history.timestamps()
        assert stamps[-1] == timestamp
        assert len(stamps) > 3


def test_removing_takes_the_oldest_first_and_not_all_at_once() -> None:
    with recorded(":memory:") as writing:
        stamps = [*_many(writing, 10)]
        database = writing.recording.database
        assert [remove(database, stamps[7], 3) for _ in range(4)] == [3, 3, 1, 0]
        assert writing.recording.history.timestamps() == stamps[7:]
