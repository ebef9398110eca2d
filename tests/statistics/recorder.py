"""A process that records statistics until it is ended, and says what it has recorded.

python -m tests.statistics.recorder kept FILE       by a keeper, as a server does
python -m tests.statistics.recorder hurried FILE    in a hurry to write to the file again
python -m tests.statistics.recorder wide FILE       the same, with a WAL file whose index is large
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final

from server.statistics.history import StatisticsHistory
from server.statistics.recorder import StatisticsRecorder
from tests.statistics.support import NOON, Clients, Writing, kept, take

_TIMES: Final = 600
"""How much faster than usual time passes for attempts to write to the file again."""


class PrintingLog:
    """Prints the ids of entries."""

    def emit(self, message_id: str, /, **_fields: object) -> None:
        """Print one."""
        print(message_id, flush=True)

    def enabled(self, _message_id: str) -> bool:
        """All are printed."""
        return True


def _present(at: int) -> dict[str, int]:
    """Some clients, of which one comes and one goes with each sample."""
    return {str(number): at for number in range(at, at + 20)}


def _keep(path: str) -> None:
    clients = Clients()
    with kept(path, PrintingLog()) as keeper:
        for at in count(round(time.time() - NOON)):
            taken = take(keeper, clients.sample(at, _present(at))).timestamp
            asked = keeper.query(partial(StatisticsHistory.timestamps, first=taken, last=taken))
            with suppress(sqlite3.Error):  # the file may be changed for another
                print(*asked.result(), flush=True)


def _hurry(path: str, rows: int = 0) -> None:
    clients = Clients()

    def clock() -> float:
        return _TIMES * time.monotonic()

    writing = Writing(StatisticsRecorder(path, PrintingLog(), clock=clock))
    database = writing.recording.database
    if rows:
        database.connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        with database.transaction():
            database.connection.execute("CREATE TABLE pad(x)")
            for _ in range(rows):
                database.connection.execute("INSERT INTO pad VALUES(?)", ("x" * 4_000,))
    for at in count(round(time.time() - NOON)):
        print(writing.write(clients.sample(at, _present(at))).timestamp, flush=True)
        time.sleep(0.01)


def record(how: str, path: str) -> None:
    """Record in one of the ways above, until the process is ended."""
    modes: dict[str, Callable[[str], None]] = {
        "kept": _keep,
        "hurried": _hurry,
        "wide": partial(_hurry, rows=6_000),
    }
    modes[how](path)


if __name__ == "__main__":
    record(*sys.argv[1:])
