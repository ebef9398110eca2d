"""A server records its statistics in a database, and survives what becomes of it."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from server.statistics.timestamps import from_unix
from tests.support.forked import Prepare
from tests.support.server import RunningServer, running_server
from tests.support.small_disk import small_disk
from tests.support.waiting import wait_until

ADMIN: Final = """
  <Admin><FileName>{path}</FileName><Interval>1s</Interval></Admin>
  <Actions>
    <Action>
      <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR1</Signal></Options></On>
      <Do><Module>amps-action-do-truncate-statistics</Module><Options><Age>1ms</Age></Options></Do>
      <Do><Module>amps-action-do-vacuum-statistics</Module></Do>
      <Do><Module>amps-action-do-echo-message</Module>
        <Options><Message>tidied up</Message></Options></Do>
    </Action>
  </Actions>
"""


@contextmanager
def recording_server(
    directory: Path, path: str = "stats.db", prepare: Prepare | None = None
) -> Iterator[RunningServer]:
    elements = ADMIN.format(path=path)
    with running_server(directory, elements=elements, prepare=prepare) as server:
        yield server


def found(path: Path, query: str) -> list[Any]:
    """What a query finds; nothing while there is no database, or no table in it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def test_what_clients_do_is_recorded(tmp_path: Path) -> None:
    """Joined by static_id, as the Monitoring Guide has it."""
    begun = from_unix(time.time())
    query = (
        "SELECT s.client_name, d.messages_in, d.timestamp FROM ICLIENTS_DYNAMIC d"
        " JOIN ICLIENTS_STATIC s ON s.static_id = d.static_id WHERE d.messages_in >= 5"
    )
    with recording_server(tmp_path) as server, server.log_on("recorded") as client:
        for _ in range(5):
            client.publish("topic", b"{}")
        wait_until(lambda: bool(found(tmp_path / "stats.db", query)))
        [(name, messages, timestamp), *_] = found(tmp_path / "stats.db", query)
    assert (name, messages) == ("recorded", 6)  # the logon is one of them
    assert begun <= timestamp <= from_unix(time.time())
    for table in ("HCPUS", "HMEMORY", "IMEMORY", "ICPUS", "IPROCESSORS", "ISTATISTICS"):
        assert found(tmp_path / "stats.db", f"SELECT * FROM {table}_DYNAMIC"), table


def test_lives_that_were_cut_off_have_no_end(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        before = len(found(path, "SELECT 1 FROM AMPERAGE_SAMPLES"))
        with recording_server(tmp_path) as server:
            wait_until(lambda: len(found(path, "SELECT 1 FROM AMPERAGE_SAMPLES")) > before)  # noqa: B023 - called at once
            server.stop(end)
    assert found(path, "PRAGMA integrity_check") == [("ok",)]
    events = found(path, "SELECT event FROM ILIFETIMES_STATIC ORDER BY static_id")
    assert [event for (event,) in events] == [
        *("started", "shutdown"),
        "started",
        *("started", "shutdown"),
    ]


def test_an_action_truncates_and_vacuums(tmp_path: Path) -> None:
    path = tmp_path / "stats.db"
    query = "SELECT timestamp FROM AMPERAGE_SAMPLES ORDER BY timestamp"
    with recording_server(tmp_path) as server:
        wait_until(lambda: len(found(path, query)) >= 2)
        [(oldest,), *_] = found(path, query)
        server.process.send_signal(signal.SIGUSR1)
        assert server.logs("29-0103 tidied up")
        assert all(timestamp > oldest for (timestamp,) in found(path, query))
        assert server.logs(" info: 1B-0004 ")
        assert server.logs(" info: 1B-0005 ")


def test_a_server_serves_whatever_its_database_is(tmp_path: Path) -> None:
    (tmp_path / "stats.db").write_text("my notes")
    with recording_server(tmp_path) as server:
        assert server.logs(" warning: 1B-0001 ")
        with server.log_on():
            pass
    assert (tmp_path / "stats.db").read_text() == "my notes"


def test_a_server_serves_while_the_disk_is_full(tmp_path: Path) -> None:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    with small_disk(mount_point, 4) as disk:
        if disk.holder is None:
            pytest.skip("mounting is forbidden here")
        with recording_server(tmp_path, str(mount_point / "stats.db"), prepare=disk) as server:
            disk.fill()
            assert server.logs(" warning: 1B-0001 ")
            with server.log_on():
                pass
