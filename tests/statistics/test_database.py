"""The statistics database: its tables, and what is read back from it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.statistics.history import PAGE
from server.statistics.layout import RECORDED
from server.statistics.recorder import StatisticsRecorder
from server.statistics.resources import CLIENTS, LIFETIMES, RESOURCES, SOW
from server.statistics.sample import StatisticsEntry
from server.statistics.timestamps import from_unix
from tests.engine.support import RecordingLog
from tests.support.chances import examples

from .support import NOON, Clients, fixed, moving, recorded, sample


def names(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def columns(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_tables_have_the_names_and_columns_of_amps(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    with recorded(path):
        pass
    assert names(path) >= {"ICLIENTS_STATIC", "ICLIENTS_DYNAMIC", "HCPUS_STATIC", "HCPUS_DYNAMIC"}
    for resource in RECORDED:
        assert columns(path, f"{resource.table}_STATIC") == [
            *("static_id", "oid"),
            *(one.name for one in resource.static_fields),
        ]
        assert columns(path, f"{resource.table}_DYNAMIC") == [
            *("timestamp", "static_id"),
            *(one.name for one in resource.dynamic_fields),
        ]
    known = {f"{one.table}_{kind}" for one in RECORDED for kind in ("STATIC", "DYNAMIC")}
    assert all(one.startswith(("AMPERAGE_", "sqlite_")) for one in names(path) - known)


def test_a_file_of_an_earlier_version_gets_what_it_lacks(tmp_path: Path) -> None:
    """Versions add fields and resources; what was recorded without them stays, and has none."""
    path, clients, log = tmp_path / "stats.db", Clients(), RecordingLog()
    with recorded(path) as writing:
        earlier = writing.write(clients.sample(0, {"1": 5}))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE ICLIENTS_DYNAMIC DROP COLUMN messages_out")
        connection.execute("ALTER TABLE ICLIENTS_STATIC DROP COLUMN transport")
        connection.execute("ALTER TABLE ITRANSPORTS_DYNAMIC DROP COLUMN bytes_in")
        for table in ("AMPERAGE_QUERIES_DYNAMIC", "AMPERAGE_QUERIES_STATIC"):
            connection.execute(f"DROP TABLE {table}")
        connection.commit()
    with recorded(path, log) as writing:
        later = writing.write(clients.sample(10, {"1": 7}))
        history = writing.recording.history
        assert writing.recording.uses_configured_path
        found = {name: history.values(CLIENTS, "1", name) for name in ("messages_out", "bytes_in")}
        transport = history.values(CLIENTS, "1", "transport", later.timestamp)
        snapshot = history.snapshot(earlier.timestamp)
    at = [earlier.timestamp, later.timestamp]
    assert found["messages_out"] == list(zip(at, ["", 7], strict=True))
    assert found["bytes_in"] == list(zip(at, [5, 7], strict=True))
    assert [value for _, value in transport] == ["1 since 0"]
    assert snapshot is not None
    assert "1" in snapshot.entries[CLIENTS.path]
    assert log.entries == []
    for resource in RECORDED:
        for kind, fields in (
            ("STATIC", resource.static_fields),
            ("DYNAMIC", resource.dynamic_fields),
        ):
            there = columns(path, f"{resource.table}_{kind}")
            assert {one.name for one in fields} <= set(there)


def test_an_index_on_static_id_stays_once_it_is_there(tmp_path: Path) -> None:
    path, index = tmp_path / "stats.db", "AMPERAGE_ICLIENTS_STATIC_ID"
    for indexed, expected in ((False, False), (True, True), (False, True)):
        StatisticsRecorder(str(path), RecordingLog(), indexed=indexed).close()
        assert (index in names(path)) == expected


def test_a_snapshot_is_read_back_as_it_was(tmp_path: Path) -> None:
    with recorded(tmp_path / "stats.db") as writing:
        taken = {
            one: [StatisticsEntry("x", fixed(one, "name"), moving(one, 7))]
            for one in RESOURCES
            if one != LIFETIMES
        }
        first = writing.write(sample(0, taken))
        second = writing.write(sample(10, {SOW: []}))
        history = writing.recording.history
        assert history.timestamps() == [first.timestamp, second.timestamp]
        found = history.snapshot(first.timestamp)
        assert found is not None
        assert found.entries == {
            one.path: first.entries[one.path] for one in RECORDED if one != LIFETIMES
        }
        assert history.snapshot(second.timestamp) is not None
        assert history.snapshot(first.timestamp + 1) is None


def test_what_has_no_number_is_no_number_in_sql(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    nothing = tuple("" for _ in SOW.source_fields)
    with recorded(path) as writing:
        one = writing.write(sample(0, {SOW: [StatisticsEntry("x", fixed(SOW, "x"), nothing)]}))
        [(_, value)] = writing.recording.history.values(SOW, "x", "valid_keys")
        assert value == ""
        found = writing.recording.history.snapshot(one.timestamp)
        assert found is not None
        assert found.entries[SOW.path]["x"] == one.entries[SOW.path]["x"]
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*) FROM ISOW_DYNAMIC WHERE valid_keys > 0"
        assert connection.execute(query).fetchone() == (0,)


def test_ranges_include_their_ends_and_come_in_pages(tmp_path: Path) -> None:
    clients = Clients()
    with recorded(tmp_path / "stats.db") as writing:
        stamps = [
            writing.write(clients.sample(at, {"1": at, "2": 2 * at})).timestamp for at in range(9)
        ]
        values = writing.recording.history.values
        assert values(CLIENTS, "2", "bytes_in", stamps[3], stamps[5]) == [
            (stamps[at], 2 * at) for at in (3, 4, 5)
        ]
        assert values(CLIENTS, "2", "bytes_in", limit=2) == [(stamps[at], 2 * at) for at in (0, 1)]
        assert values(CLIENTS, "3", "bytes_in") == []
        assert values(CLIENTS, "1", "client_name", stamps[8]) == [(stamps[8], "1 since 0")]
        assert len(writing.recording.history.timestamps(stamps[1], limit=4)) == 4
        assert PAGE >= 4


def test_averages_are_of_equal_parts_of_a_time(tmp_path: Path) -> None:
    clients = Clients()
    with recorded(tmp_path / "stats.db") as writing:
        for second in range(100):
            writing.write(clients.sample(second, {"one": second} if second != 50 else {}))
        history = writing.recording.history
        first, last = from_unix(NOON), from_unix(NOON + 99.999)
        (all_of_it,) = history.averages(CLIENTS, "one", "queue_depth_out", first, last, 1)
        ten = history.averages(CLIENTS, "one", "queue_depth_out", first, last, 10)
        fine = history.averages(CLIENTS, "one", "queue_depth_out", first, last, 1_000)
    assert all_of_it[0] == from_unix(NOON + 99)
    assert all_of_it[1] == pytest.approx(49.5, abs=8)
    assert [at for at, _ in ten] == [from_unix(NOON + 10 * part + 9) for part in range(10)]
    assert [value for _, value in ten] == pytest.approx(
        [10 * part + 4.5 for part in range(10)], abs=1
    )
    assert [value for _, value in fine] == [number for number in range(100) if number != 50]


def test_entries_go_on_after_a_restart_and_new_ones_do_not(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    for life in range(3):
        with recorded(path) as writing:
            same = StatisticsEntry("orders", fixed(SOW, "orders"), moving(SOW, life))
            other = StatisticsEntry("trades", fixed(SOW, f"trades {life}"), moving(SOW, life))
            writing.write(sample(life, {SOW: [same, other]}))
            values = writing.recording.history.values(SOW, "orders", "valid_keys")
            assert [value for _, value in values] == [*range(life + 1)]
            values = writing.recording.history.values(SOW, "trades", "valid_keys")
            assert [value for _, value in values] == [*range(life + 1)]
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT oid, count(*) FROM ISOW_STATIC GROUP BY oid ORDER BY oid"
        assert connection.execute(query).fetchall() == [("orders", 1), ("trades", 3)]


def test_two_entries_with_one_id_count_as_the_last_of_them(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    both = [StatisticsEntry("x", fixed(SOW, name), moving(SOW, 5)) for name in ("one", "other")]
    with recorded(path) as writing:
        for at in range(3):
            writing.write(sample(at, {SOW: both}))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT topic FROM ISOW_STATIC").fetchall() == [("other",)]


def test_fields_that_a_later_version_has_are_added(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    with recorded(path) as writing:
        old = writing.write(Clients().sample(0, {"1": 1}))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE ICLIENTS_DYNAMIC DROP COLUMN query_time")
        connection.execute("ALTER TABLE ICLIENTS_STATIC DROP COLUMN transport")
        connection.execute("ALTER TABLE ICLIENTS_STATIC ADD COLUMN of_the_future TEXT")
    with recorded(path) as writing:
        new = writing.write(Clients().sample(9, {"1": 2}))
        values = writing.recording.history.values
        assert values(CLIENTS, "1", "query_time") == [(old.timestamp, ""), (new.timestamp, 2)]
        assert values(CLIENTS, "1", "bytes_in") == [(old.timestamp, 1), (new.timestamp, 2)]
        assert values(CLIENTS, "1", "transport")[0] == (old.timestamp, "")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1 << 40), max_size=4), max_size=12
    ),
    st.integers(-1, 13),
    st.integers(-1, 13),
)
def test_whatever_is_written_is_read_back(
    counts: list[dict[str, int]], first: int, last: int
) -> None:
    clients = Clients()
    with recorded(":memory:") as writing:
        history = writing.recording.history
        snapshots = [
            writing.write(clients.sample(at, present)) for at, present in enumerate(counts)
        ]
        from_, to = (from_unix(NOON + at) for at in (first, last))
        for client in "abcd":
            assert history.values(CLIENTS, client, "bytes_in", from_, to) == [
                (from_unix(NOON + at), present[client])
                for at, present in enumerate(counts)
                if first <= at <= last and client in present
            ]
        for snapshot in snapshots:
            found = history.snapshot(snapshot.timestamp)
            assert found is not None
            assert found.entries.get(CLIENTS.path, {}) == snapshot.entries[CLIENTS.path]


@pytest.mark.parametrize("number", [0, (1 << 63) - 1, -(1 << 63)])
def test_numbers_may_be_large(number: int) -> None:
    with recorded(":memory:") as writing:
        writing.write(Clients().sample(0, {"1": number}))
        [(_, found)] = writing.recording.history.values(CLIENTS, "1", "bytes_in")
        assert found == number
