"""The thread of statistics."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server.statistics.history import StatisticsHistory
from server.statistics.host_resources import HOST_CPUS
from server.statistics.reader import MAX_PENDING_HISTORY_QUERIES, ReaderBusyError
from server.statistics.resources import CLIENTS, LIFETIMES, STATISTICS
from server.statistics.sample import StatisticsEntry
from server.statistics.schema import Resource, StatisticValue
from server.statistics.statistics_thread import StatisticsThread
from tests.engine.support import RecordingLog
from tests.support.waiting import WAIT_SECONDS, wait_until

from .support import LATER, NOON, Clients, kept, take


class Held:
    """Keeps a keeper's thread busy with a question."""

    def __init__(self, keeper: StatisticsThread) -> None:
        self._begun, self._end = threading.Event(), threading.Event()
        self.answer = keeper.query(self._hold)
        assert self._begun.wait(WAIT_SECONDS)

    def _hold(self, _history: StatisticsHistory) -> None:
        self._begun.set()
        assert self._end.wait(WAIT_SECONDS)

    def release(self) -> None:
        self._end.set()


def named(resource: Resource, values: tuple[StatisticValue, ...]) -> dict[str, StatisticValue]:
    return dict(zip((one.name for one in resource.fields), values, strict=True))


def test_a_sample_becomes_the_latest_snapshot_and_is_recorded() -> None:
    clients = Clients()
    with kept(":memory:") as keeper:
        assert keeper.latest is None
        take(keeper, clients.sample(0, {"1": 5}))
        latest = take(keeper, clients.sample(10, {"1": 25}))
        assert named(CLIENTS, latest.entries[CLIENTS.path]["1"])["bytes_in_per_sec"] == 2
        found = keeper.query(lambda history: history.snapshot(latest.timestamp)).result(
            WAIT_SECONDS
        )
        assert found is not None
        assert found.entries[CLIENTS.path] == latest.entries[CLIENTS.path]


def test_the_thread_counts_what_it_does() -> None:
    clients = Clients()
    with kept(":memory:") as keeper:
        for at in range(3):
            latest = take(keeper, clients.sample(at, {"1": 5}))
            keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)
        [values] = latest.entries[STATISTICS.path].values()
        found = named(STATISTICS, values)
        assert (found["file_name"], found["interval"], found["file_size"]) == (":memory:", 1000, 0)
        assert (found["total_samples"], found["queries"]) == (2, 1)  # as of the sample before
        assert int(found["memory_used"]) > 0
        assert int(found["total_time"]) >= int(found["total_commit_time"]) > 0


@pytest.mark.parametrize("directory", ["missing", "no_directory"])
def test_the_size_of_the_file_is_that_of_a_file(tmp_path: Path, directory: str) -> None:
    """A directory that is missing is made."""
    (tmp_path / "no_directory").touch()
    clients, path = Clients(), tmp_path / directory / "stats.db"
    with kept(path) as keeper:
        take(keeper, clients.sample(0, {"1": 1}))
        [values] = take(keeper, clients.sample(1, {"1": 2})).entries[STATISTICS.path].values()
    found = named(STATISTICS, values)
    assert found["file_name"] == str(path)
    assert (int(found["file_size"]) > 0) == (directory == "missing")
    assert int(found["memory_used"]) > 0


def test_when_samples_come_too_fast_the_oldest_is_dropped() -> None:
    clients, log = Clients(), RecordingLog()
    with kept(":memory:", log) as keeper:
        held = Held(keeper)
        for at in range(5):
            keeper.add_sample(clients.sample(at, {"1": at}))
        held.release()
        wait_until(lambda: keeper.latest is not None)
        values = keeper.query(lambda history: history.values(CLIENTS, "1", "bytes_in"))
        assert [value for _, value in values.result(WAIT_SECONDS)] == [3, 4]
        assert keeper.dropped_samples == 3
        assert [fields["count"] for one, fields in log.entries if one == "05-0002"] == [3]


def test_questions_are_refused_when_too_many_wait() -> None:
    with kept(":memory:") as keeper:
        held = Held(keeper)
        waiting = [
            keeper.query(StatisticsHistory.timestamps) for _ in range(MAX_PENDING_HISTORY_QUERIES)
        ]
        with pytest.raises(ReaderBusyError):
            keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)
        assert waiting[0].cancel()
        held.release()
        assert waiting[-1].result(WAIT_SECONDS) == []


def test_samples_go_on_while_a_question_reads_the_file(tmp_path: Path) -> None:
    """Questions about memory are small, and answered where samples are recorded."""
    clients = Clients()
    with kept(tmp_path / "stats.db") as keeper:
        take(keeper, clients.sample(0, {"1": 1}))
        wait_until(lambda: keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS) != [])
        held = Held(keeper)
        behind = keeper.query(StatisticsHistory.timestamps)
        for at in range(1, 4):
            take(keeper, clients.sample(at, {"1": at}))
        with closing(sqlite3.connect(tmp_path / "stats.db")) as other:
            rows = "SELECT count(*) FROM AMPERAGE_SAMPLES"
            wait_until(lambda: other.execute(rows).fetchone() == (4,))
        assert not behind.done()
        held.release()
        assert len(behind.result(WAIT_SECONDS)) == 4


def test_what_has_been_told_is_found(tmp_path: Path) -> None:
    clients = Clients()
    with kept(tmp_path / "stats.db") as keeper:
        for at in range(30):
            latest = take(keeper, clients.sample(at, {"1": at}))
            found = keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)
            assert found[-1] == latest.timestamp


def test_a_file_that_takes_the_place_of_another_is_read(tmp_path: Path) -> None:
    clients, path = Clients(), tmp_path / "stats.db"
    with kept(path) as keeper:
        take(keeper, clients.sample(0, {"1": 1}))
        assert len(keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)) == 1
        for file in tmp_path.iterdir():
            file.unlink()
        latest = take(keeper, clients.sample(1, {"1": 2}))
        assert keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS) == [latest.timestamp]


def test_too_many_questions_about_a_file_are_refused(tmp_path: Path) -> None:
    with kept(tmp_path / "stats.db") as keeper:
        take(keeper, Clients().sample(0, {}))
        held = Held(keeper)
        waiting = [
            keeper.query(StatisticsHistory.timestamps) for _ in range(MAX_PENDING_HISTORY_QUERIES)
        ]
        with pytest.raises(ReaderBusyError):
            keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)
        held.release()
        assert len(waiting[-1].result(WAIT_SECONDS)) == 1


def test_what_fails_fails_for_whoever_asked() -> None:
    clients, log = Clients(), RecordingLog()

    def fail(_: object) -> None:
        raise ValueError("no")

    with kept(":memory:", log) as keeper:
        with pytest.raises(ValueError, match="no"):
            keeper.query(fail).result(WAIT_SECONDS)
        keeper.add_watcher(fail)
        take(keeper, clients.sample(0, {}))
        assert [one for one, _ in log.entries] == ["05-0003"]
        assert len(keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)) == 1


class Broken:
    """A source that fails until it is mended."""

    resource = HOST_CPUS
    is_broken = True

    def entries(self) -> Iterator[StatisticsEntry]:
        if self.is_broken:
            raise OSError(5, "Input/output error")
        yield StatisticsEntry("all", (), (1.0, 2.0, 3.0, 4.0))


def test_a_source_that_fails_is_missing_and_named_once() -> None:
    clients, log, source = Clients(), RecordingLog(), Broken()
    keeper = StatisticsThread(":memory:", 1000, log, sources=[source])
    keeper.start()
    for at in range(2):
        assert HOST_CPUS.path not in take(keeper, clients.sample(at, {})).entries
    source.is_broken = False
    assert take(keeper, clients.sample(2, {})).entries[HOST_CPUS.path] == {"all": (1, 2, 3, 4)}
    source.is_broken = True
    take(keeper, clients.sample(3, {}))
    keeper.close()
    assert [one for one, _ in log.entries] == ["05-0001", "05-0001"]


def test_watchers_hear_of_snapshots_until_they_stop() -> None:
    clients, heard = Clients(), list[int]()
    with kept(":memory:") as keeper:
        stop = keeper.add_watcher(lambda snapshot: heard.append(snapshot.timestamp))
        first = take(keeper, clients.sample(0, {}))
        stop()
        stop()
        take(keeper, clients.sample(1, {}))
        assert heard == [first.timestamp]


def test_lives_of_the_instance_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    for life in range(3):
        with kept(path) as keeper:
            latest = take(keeper, Clients().sample(life, {}))
            events = [
                named(LIFETIMES, values)["event"]
                for values in latest.entries[LIFETIMES.path].values()
            ]
            assert events == ["started", "shutdown"] * life + ["started"]
            assert list(latest.entries[LIFETIMES.path]) == [
                str(1 + at) for at in range(len(events))
            ]
            values = keeper.query(lambda history: history.values(LIFETIMES, "1", "event"))
            assert [value for _, value in values.result(WAIT_SECONDS)] == ["started"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["stats.db"]


def test_truncating_removes_what_is_older_than_an_age(tmp_path: Path) -> None:
    path, clients, log = tmp_path / "stats.db", Clients(), RecordingLog()
    with kept(path):
        pass
    with kept(path, log) as keeper:
        stamps = [
            take(keeper, clients.sample(at, {"1": at})).timestamp for at in range(0, LATER, 10)
        ]
        assert keeper.truncate(LATER - 800).result(WAIT_SECONDS) == 80
        assert keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS) == stamps[80:]
        assert [fields["count"] for one, fields in log.entries if one == "1B-0004"] == [80]
        latest = take(keeper, clients.sample(LATER, {}))
        assert latest.entries[LIFETIMES.path]


def test_what_is_old_is_thinned_out_without_being_asked_for() -> None:
    clients = Clients()
    keeper = StatisticsThread(":memory:", 1000, RecordingLog(), clock=lambda: NOON + 4 * 3600)
    keeper.start()
    for at in range(0, 600, 10):
        take(keeper, clients.sample(at, {"1": at}))
    wait_until(lambda: len(keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS)) <= 11)
    keeper.close()


def test_questions_do_not_keep_the_thread_from_tidying_up() -> None:
    """Whoever asks again at once never lets it be without a question."""
    is_done = threading.Event()
    with kept(":memory:") as keeper:

        def ask_again(_: object = None) -> None:
            if not is_done.is_set():
                keeper.query(StatisticsHistory.timestamps).add_done_callback(ask_again)

        ask_again()
        assert keeper.truncate(0).result(WAIT_SECONDS) == 0
        is_done.set()


def test_vacuuming_makes_the_file_smaller_and_truncating_does_not(tmp_path: Path) -> None:
    path, clients = tmp_path / "stats.db", Clients()
    present = {str(number): number for number in range(500)}
    with kept(path) as keeper:
        for at in range(50):
            take(keeper, clients.sample(at, present))
        keeper.truncate(0).result(WAIT_SECONDS)
        with closing(sqlite3.connect(path)) as other:
            before = other.execute("PRAGMA page_count").fetchone()
            keeper.vacuum().result(WAIT_SECONDS)
            after = other.execute("PRAGMA page_count").fetchone()
        assert after[0] < before[0] / 4
        assert keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS) == []


def test_what_is_asked_of_a_keeper_that_closes_is_cancelled() -> None:
    with kept(":memory:") as keeper:
        held = Held(keeper)
        waiting: list[Future[Any]] = [
            keeper.query(StatisticsHistory.timestamps),
            keeper.truncate(0),
            keeper.vacuum(),
        ]
        closing_thread = threading.Thread(target=keeper.close)
        closing_thread.start()
        wait_until(lambda: keeper.query(StatisticsHistory.timestamps).cancelled())
        held.release()
        closing_thread.join()
        for future in waiting:
            with pytest.raises(CancelledError):
                future.result(WAIT_SECONDS)
        with pytest.raises(CancelledError):
            keeper.vacuum().result(WAIT_SECONDS)


def test_samples_that_wait_when_it_closes_are_recorded(tmp_path: Path) -> None:
    path, clients = tmp_path / "stats.db", Clients()
    with kept(path) as keeper:
        held = Held(keeper)
        keeper.add_sample(clients.sample(0, {"1": 1}))
        held.release()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM ICLIENTS_DYNAMIC").fetchone() == (1,)
