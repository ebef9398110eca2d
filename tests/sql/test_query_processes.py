"""Queries run in processes of their own: what one of them does with memory concerns no other."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest

from server.sql.query.processes.process_pool import MAX_PROCESSES, user_process_limit
from server.util.memory_limit import available_memory_bytes
from tests.sql.support import ORDERS, SqlServer, sql_server
from tests.support.waiting import comes_true

MEMORY = "<SQL><MaxMemory>64MB</MaxMemory></SQL>"
"""A limit that is soon reached."""

MAX_GROWTH = 300 * 1024 * 1024
"""How much the server may grow beside queries that build hundreds of GB, in bytes."""

_DOUBLED = "SELECT repeat('x', 1000) AS x"
for _ in range(40):
    _DOUBLED = f"SELECT x || x AS x FROM ({_DOUBLED}) AS t"

_FIVE = "orders a, orders b, orders c, orders d, orders e"
HOSTILE = {
    "doubled texts": f"SELECT length(x) FROM ({_DOUBLED}) AS t",
    "a list of all rows": f"SELECT array_agg(a.id || b.id || c.id || d.id) FROM {_FIVE}",
    "an aggregated text": f"SELECT length(string_agg(a.symbol || b.symbol, '')) FROM {_FIVE}",
    "a sort": f"SELECT a.* FROM {_FIVE} ORDER BY a.price + b.price, c.id, d.id, e.id",
    "many groups": f"SELECT a.id, b.id, c.id, d.id, e.id FROM {_FIVE} GROUP BY 1, 2, 3, 4, 5",
}


def query_processes(server: int) -> list[int]:
    """Return the process ids of the query processes of a server."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == server and b"processes.worker" in command and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def endless(sql: SqlServer, ended: list[psycopg.Error], user: str = "tester") -> threading.Thread:
    """Run a query without an end on a connection of its own."""

    def run() -> None:
        with sql.connect(user=user) as connection:
            try:
                connection.execute(
                    f"SELECT count(*) FROM {_FIVE}, orders f, orders g WHERE a.id < g.id + f.id"
                )
            except psycopg.Error as error:
                ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE)
def test_a_query_beyond_its_memory_fails_alone(tmp_path: Path, query: str) -> None:
    with sql_server(tmp_path, elements=MEMORY) as sql:
        sql.publish("orders", *ORDERS)
        pid = sql.server.process.pid
        with sql.connect() as hostile, sql.connect() as neighbour:
            neighbour.execute("SELECT count(*) FROM orders")
            before = resident_bytes(pid)
            with pytest.raises(psycopg.Error) as failure:
                hostile.execute(query)
            assert failure.value.sqlstate in ("53200", "57P02", "54000"), failure.value
            assert resident_bytes(pid) - before < MAX_GROWTH
            assert neighbour.execute("SELECT count(*) FROM orders").fetchall() == [(50,)]
            assert hostile.execute("SELECT max(qty) FROM orders").fetchall() == [(490,)]
        assert sql.server.logs("16-0037")


def test_a_process_that_is_killed_ends_its_query_only(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        sql.publish("orders", *ORDERS)
        ended: list[psycopg.Error] = []
        thread = endless(sql, ended)
        pid = sql.server.process.pid
        assert comes_true(lambda: len(query_processes(pid)) == 1)
        time.sleep(0.5)  # until it computes
        os.kill(query_processes(pid)[0], signal.SIGKILL)
        thread.join()
        assert [error.sqlstate for error in ended] == ["57P02"]
        with sql.connect() as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(50,)]


@pytest.mark.parametrize("is_killed", [True, False])
def test_no_process_outlives_the_server(tmp_path: Path, is_killed: bool) -> None:
    with sql_server(tmp_path) as sql:
        sql.publish("orders", *ORDERS)
        ended: list[psycopg.Error] = []
        thread = endless(sql, ended)
        pid = sql.server.process.pid
        with sql.connect() as connection:
            connection.execute("SELECT count(*) FROM orders")
            assert comes_true(lambda: len(query_processes(pid)) == 2)
        processes = query_processes(pid)
        os.kill(pid, signal.SIGKILL if is_killed else signal.SIGTERM)
        thread.join()
        assert comes_true(lambda: not any(map(is_running, processes)))


def test_statements_of_other_clients_go_on_beside_many_endless_ones(tmp_path: Path) -> None:
    with sql_server(tmp_path, elements=MEMORY) as sql:
        sql.publish("orders", *ORDERS)
        ended: list[psycopg.Error] = []
        threads = [endless(sql, ended) for _ in range(12)]
        pid = sql.server.process.pid
        assert comes_true(lambda: len(query_processes(pid)) == 12)
        with sql.connect() as connection:
            assert connection.execute("SELECT max(qty) FROM orders").fetchall() == [(490,)]
            assert connection.execute("SELECT qty FROM orders WHERE id = 7").fetchall() == [(70,)]
            connection.execute("INSERT INTO orders (id, qty) VALUES (100, 1000)")
            assert connection.execute("SELECT max(qty) FROM orders").fetchall() == [(1000,)]
        assert not ended
        os.kill(pid, signal.SIGTERM)
        for thread in threads:
            thread.join()


def test_no_user_gets_all_processes(tmp_path: Path) -> None:
    with sql_server(tmp_path, elements=MEMORY) as sql:
        sql.publish("orders", *ORDERS)
        ended: list[psycopg.Error] = []
        threads = [endless(sql, ended, "busy") for _ in range(MAX_PROCESSES + 4)]
        pid = sql.server.process.pid
        assert comes_true(lambda: len(query_processes(pid)) == user_process_limit(MAX_PROCESSES))
        with sql.connect(user="other") as connection:
            assert connection.execute("SELECT max(qty) FROM orders").fetchall() == [(490,)]
        with sql.connect(user="busy") as connection:  # which needs no process
            assert connection.execute("SELECT qty FROM orders WHERE id = 7").fetchall() == [(70,)]
            connection.execute("SET statement_timeout = '300ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):  # while it waits for one
                connection.execute("SELECT max(qty) FROM orders")
        for process in query_processes(pid):
            os.kill(process, signal.SIGKILL)
        assert comes_true(lambda: len(ended) >= user_process_limit(MAX_PROCESSES))
        with sql.connect(user="busy") as connection:
            assert connection.execute("SELECT max(qty) FROM orders").fetchall() == [(490,)]
        os.kill(pid, signal.SIGTERM)
        for thread in threads:
            thread.join()


def test_all_queries_together_get_half_of_the_memory(tmp_path: Path) -> None:
    megabytes = available_memory_bytes() >> 20
    memory = f"<SQL><MaxMemory>{megabytes // 3}MB</MaxMemory></SQL>"
    with sql_server(tmp_path, elements=memory) as sql:
        sql.publish("orders", *ORDERS)
        ended: list[psycopg.Error] = []
        threads = [endless(sql, ended, user) for user in ("ann", "bob", "cat")]
        pid = sql.server.process.pid
        assert comes_true(lambda: len(query_processes(pid)) == 2)
        with sql.connect(user="dan") as connection:
            connection.execute("SET statement_timeout = '500ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):  # it waits
                connection.execute("SELECT max(qty) FROM orders")
        assert len(query_processes(pid)) == 2
        os.kill(pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
