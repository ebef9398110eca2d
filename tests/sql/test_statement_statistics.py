"""Statistics and metrics of SQL statements, and the log of slow ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.admin.support import ask
from tests.sql.support import ORDERS, sql_server
from tests.support.server import free_port
from tests.support.waiting import comes_true, wait_until

ADMIN = (
    "<Admin><InetAddr>127.0.0.1:{port}</InetAddr><FileName>stats.db</FileName>"
    "<Interval>1s</Interval></Admin>"
)
SLOW = (
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e"
    " WHERE a.id + b.id + c.id + d.id < e.id * 0.001"
)


def numbers(port: int, path: str) -> dict[str, int]:
    """The numbers of a resource."""
    reply = ask(port, f"/amps/instance/{path}.json")
    found = json.loads(reply.body)["amps"]["instance"]["sql"]
    return {name: int(value) for name, value in found.items() if str(value).isdigit()}


def metric(port: int, name: str) -> float:
    """The value of a metric; -1 if it is not there."""
    found = re.search(
        rf"^{re.escape(name)} (\S+)$", ask(port, "/metrics").body.decode(), re.MULTILINE
    )
    return float(found[1]) if found else -1.0


def comes(value: Callable[[], object], expected: object) -> None:
    wait_until(lambda: value() == expected, lambda: f"{value()}, and not {expected}")


def test_statements_are_counted(tmp_path: Path) -> None:
    port = free_port()
    with sql_server(tmp_path, elements=ADMIN.format(port=port)) as sql:
        sql.publish("orders", *ORDERS)
        comes(lambda: metric(port, "amperage_sql_statements_total"), 0.0)
        with sql.connect() as connection:
            connection.execute("SELECT id FROM orders").fetchall()
            connection.execute("SELECT id FROM orders WHERE id > %s", (39,)).fetchall()
            for wrong in ("SELECT nothing FROM orders", "SELECT 1 / 'x'::int", "COPY a FROM STDIN"):
                with pytest.raises(psycopg.errors.Error):
                    connection.execute(wrong)
            threading.Timer(0.3, connection.cancel).start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(SLOW)
            comes(lambda: metric(port, "amperage_sql_cancelled_statements_total"), 1.0)
        comes(lambda: metric(port, "amperage_sql_sent_rows_total"), 60.0)
        comes(lambda: metric(port, 'amperage_sql_errors_total{class="42"}'), 1.0)
        assert metric(port, 'amperage_sql_errors_total{class="22"}') == 1.0
        assert metric(port, 'amperage_sql_errors_total{class="0A"}') == 1.0
        assert metric(port, 'amperage_sql_errors_total{class="57"}') == 1.0
        assert metric(port, "amperage_sql_running_statements") == 0.0
        assert metric(port, "amperage_sql_statements_total") == 6.0
        assert metric(port, "amperage_sql_statement_seconds_count") == 6.0
        assert metric(port, "amperage_sql_statement_seconds_sum") > 0.2
        assert metric(port, "amperage_sql_sent_bytes_total") > 600
        assert metric(port, "amperage_sql_memory_limit_hits_total") == 0.0
        shown = numbers(port, "sql")
        assert (shown["statements"], shown["failed"], shown["cancelled"]) == (6, 4, 1)
        row = "SELECT statements > 5, rows_out > 50 FROM amps_stats.sql"
        wait_until(lambda: sql.psql(row).stdout == "t|t\n", lambda: sql.psql(row))


def test_running_statements_are_shown_until_their_client_leaves(tmp_path: Path) -> None:
    port = free_port()
    with sql_server(tmp_path, elements=ADMIN.format(port=port)) as sql:
        sql.publish("orders", *ORDERS)
        connection = sql.connect()
        connection.pgconn.send_query(b"COPY (SUBSCRIBE TO orders) TO STDOUT")
        comes(lambda: metric(port, "amperage_sql_running_statements"), 1.0)
        connection.close()
        comes(lambda: metric(port, "amperage_sql_running_statements"), 0.0)


def test_slow_statements_are_logged(tmp_path: Path) -> None:
    elements = "<SQL><SlowQuery>200ms</SlowQuery></SQL>"
    with sql_server(tmp_path, elements=elements) as sql:
        sql.publish("orders", *ORDERS)
        with sql.connect(application_name="first") as connection:
            connection.execute("SELECT 1")  # starts a process, which may take as long
        with sql.connect(application_name="report") as connection:
            connection.execute("SELECT 'quick'")
            connection.execute("SET statement_timeout = '400ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(f"SELECT 'x\n\x1b', %s, ({SLOW}) /* {'long ' * 500} */", ("v",))
        slow = re.compile(r"client\[report-\d+\] SQL statement took (\d+) ms \((.*)\): (.*)")
        assert comes_true(lambda: slow.search(sql.server.log()) is not None)
        (found,) = slow.finditer(sql.server.log())
        assert int(found[1]) >= 200
        assert found[2].startswith("error 57014, 0 rows sent, user '', connection ")
        assert found[3].startswith("SELECT 'x ?', $1, (SELECT count(*) FROM orders a,")
        assert len(found[3]) == 1000
        assert "'quick'" not in sql.server.log()


def test_by_default_no_statement_is_logged(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        sql.psql("SELECT 1")
        assert sql.server.logs("disconnected")
        assert "16-0036" not in sql.server.log()
