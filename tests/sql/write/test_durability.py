"""Acknowledged writes survive a killed server."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg

from tests.sql.support import SqlServer
from tests.sql.write.support import bodies, write_server
from tests.support.waiting import wait_until


def test_acknowledged_rows_are_there_after_a_kill(tmp_path: Path) -> None:
    """Several clients insert, update and delete until the server is killed; nothing is lost."""
    inserted: list[int] = []
    updated: list[int] = []
    deleted: list[int] = []

    def write(sql: SqlServer, first: int) -> None:
        try:
            with sql.connect() as connection:
                for number in range(first, first + 100_000, 3):
                    connection.execute(
                        "INSERT INTO orders (id, v) VALUES (%s, 0), (%s, 0), (%s, 0)",
                        (number, number + 1, number + 2),
                    )
                    inserted.extend((number, number + 1, number + 2))
                    connection.execute("UPDATE orders SET v = 1 WHERE id = %s", (number,))
                    updated.append(number)
                    connection.execute("DELETE FROM orders WHERE id = %s", (number + 1,))
                    deleted.append(number + 1)
        except psycopg.OperationalError:
            return  # the server is gone

    with write_server(tmp_path) as sql:
        threads = [
            threading.Thread(target=write, args=(sql, client * 1_000_000)) for client in range(3)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(deleted) >= 30)
        sql.server.process.kill()
        for thread in threads:
            thread.join()
    assert len(deleted) >= 30
    with write_server(tmp_path) as sql, sql.connect() as connection:
        found = {record["id"]: record["v"] for record in bodies(connection, "orders")}
    gone = set(deleted)
    # The last statement of each client may have been executed without its answer.
    in_doubt = {number + 1 for number in updated} - gone
    assert set(inserted) - gone - in_doubt <= found.keys()
    assert not gone & found.keys()
    assert all(found[number] == 1 for number in updated)
