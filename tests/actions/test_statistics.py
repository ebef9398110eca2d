"""The actions that look after the statistics database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from server.statistics.history import StatisticsHistory
from tests.statistics.support import LATER, Clients, kept, take
from tests.support.waiting import WAIT_SECONDS

from .support import Bench


def test_statistics_of_an_age_are_removed_and_what_they_took_is_given_back(tmp_path: Path) -> None:
    path, clients, bench = tmp_path / "stats.db", Clients(), Bench()
    present = {str(number): number for number in range(300)}
    with kept(path) as keeper, closing(sqlite3.connect(path)) as other:
        bench.services.statistics = keeper
        stamps = [take(keeper, clients.sample(at, present)).timestamp for at in (*range(30), LATER)]

        bench.add(None, ("amps-action-do-truncate-statistics", {"Age": "{{AGE}}s"}))
        bench.perform(AGE=b"10")
        assert keeper.query(StatisticsHistory.timestamps).result(WAIT_SECONDS) == stamps[-1:]

        before = other.execute("PRAGMA page_count").fetchone()[0]
        bench.actions.clear()
        bench.add(None, ("amps-action-do-vacuum-statistics", {}))
        bench.perform()
        assert other.execute("PRAGMA page_count").fetchone()[0] < before / 2
