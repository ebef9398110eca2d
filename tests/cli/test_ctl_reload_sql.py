"""`amps-ctl reload`: transports for SQL are added, removed and changed."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from adbc_driver_manager import Error as AdbcError

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, reloaded
from tests.security.users import MODULES, USERS, write_users
from tests.sql.flight.support import TRANSPORT as FLIGHT
from tests.sql.flight.support import FlightServer, bearer
from tests.sql.support import TOPICS, TRANSPORT, SqlServer
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import Authority

END: Final = "</Transports>"
SQL_PORT: Final = free_port()
FLIGHT_PORT: Final = free_port()
POSTGRES: Final = TRANSPORT.format(port=SQL_PORT, type="tcp", elements="")
FLIGHT_SQL: Final = FLIGHT.format(port=FLIGHT_PORT, elements="")
ENDLESS: Final = "SELECT count(*) FROM generate_series(1, 100000000000) AS numbers(n)"
LOADED: Final = MODULES.partition("<Authentication>")[0]
FOR_TRANSPORT: Final = MODULES.removeprefix(LOADED)


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=TOPICS) as running:
        yield running


def add(admin: Admin, *transports: str) -> list[str]:
    """Add transports, and reload."""
    edit(admin, END, "".join(transports) + END)
    return reloaded(admin)


def count(admin: Admin) -> int:
    """The answer of a query over PostgreSQL's protocol."""
    with SqlServer(admin.server, SQL_PORT).connect() as connection:
        row = connection.execute("SELECT count(*) FROM orders").fetchone()
        assert row is not None
        return int(row[0])


def flight_server(admin: Admin) -> FlightServer:
    """The transport for Flight SQL."""
    return FlightServer(SqlServer(admin.server, FLIGHT_PORT), "grpc")


def of_console(admin: Admin) -> str:
    """The transport through which the console executes statements; empty if there is none."""
    return str(admin.ask("/console/session.json").json["sql"])


def console_answer(admin: Admin, statement: str) -> tuple[int, list[dict[str, Any]]]:
    """The status and the lines of a statement of the console."""
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=WAIT_SECONDS)
    try:
        body = json.dumps({"statement": statement})
        connection.request("POST", "/console/sql", body, {"X-Requested-With": "test"})
        reply = connection.getresponse()
        lines = reply.read().decode().splitlines()
        return reply.status, [json.loads(line) for line in lines if line.startswith("{")]
    finally:
        connection.close()


def test_the_first_transports_are_added_and_the_last_removed(admin: Admin) -> None:
    """Twice, as what they share outlives them; a statement that runs ends."""
    assert console_answer(admin, "SELECT 1")[0] == 404
    for _ in range(2):
        assert of_console(admin) == ""
        add(admin, POSTGRES, FLIGHT_SQL)
        assert count(admin) == 0
        assert flight_server(admin).query("SELECT count(*) AS n FROM orders") == [{"n": 0}]
        assert of_console(admin) == "sql"
        status, lines = console_answer(admin, "SELECT 40 + 2 AS n")
        assert (status, lines[2]) == (200, {"rows": [["42"]]})
        sql = SqlServer(admin.server, SQL_PORT)
        with ThreadPoolExecutor(2) as pool, sql.connect() as idle, sql.connect() as busy:
            running = pool.submit(busy.execute, ENDLESS)
            in_flight = pool.submit(flight_server(admin).query, ENDLESS)
            wait_until(lambda: runs_statements(admin) >= 2, admin.server.log)
            edit(admin, POSTGRES + FLIGHT_SQL, "")
            lines_of_reload = reloaded(admin)
            assert "transport sql is closed, with 2 connections" in lines_of_reload
            assert "transport flight is closed, with 1 connections" in lines_of_reload
            with pytest.raises(psycopg.Error):
                running.result()
            with pytest.raises(AdbcError):
                in_flight.result()
            with pytest.raises(psycopg.Error):
                idle.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            count(admin)
    assert "01-0004" not in admin.server.log()


def runs_statements(admin: Admin) -> int:
    """The number of statements that are being executed."""
    return int(admin.tree("/amps/instance/sql/running.json")["amps"]["instance"]["sql"]["running"])


def test_limits_and_certificates_change_for_transports_that_stay(
    admin: Admin, tmp_path: Path
) -> None:
    old, new = (Authority(tmp_path, name) for name in ("old", "new"))

    def secured(authority: Authority, limit: str) -> str:
        certificate, key = authority.issue("localhost")
        elements = (
            f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
            f"<MessageMemoryLimit>{limit}</MessageMemoryLimit>"
        )
        return TRANSPORT.format(port=SQL_PORT, type="tcps", elements=elements)

    before, after = secured(old, "10MB"), secured(new, "20MB")
    add(admin, before)

    def terms(authority: Authority) -> dict[str, Any]:
        return {"sslmode": "verify-ca", "sslrootcert": str(authority.file)}

    sql = SqlServer(admin.server, SQL_PORT)
    with sql.connect(**terms(old)) as kept:
        edit(admin, before, after)
        assert reloaded(admin)[-1] == "3 differences applied."
        assert kept.execute("SELECT 1").fetchone() == (1,)
        with sql.connect(**terms(new)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError):
            sql.connect(**terms(old))


def test_the_time_of_statements_is_limited_from_the_reload_on(admin: Admin) -> None:
    add(admin, POSTGRES)
    with SqlServer(admin.server, SQL_PORT).connect() as connection:
        edit(
            admin,
            "</AMPSConfig>",
            "<SQL><StatementTimeout>100ms</StatementTimeout></SQL></AMPSConfig>",
        )
        assert reloaded(admin)[0].startswith("SQL/StatementTimeout: ")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)


def test_memory_and_threads_are_those_of_queries_after_the_reload(admin: Admin) -> None:
    """The process that was idle before the reload gets no other query."""
    large = (
        "SELECT count(*) FROM"
        " (SELECT n FROM generate_series(1, 4000000) AS numbers(n) GROUP BY n) AS groups"
    )
    edit(admin, "</AMPSConfig>", "<SQL><MaxMemory>64MB</MaxMemory></SQL></AMPSConfig>")
    add(admin, POSTGRES)
    with SqlServer(admin.server, SQL_PORT).connect() as connection:
        with pytest.raises(psycopg.errors.OutOfMemory):
            connection.execute(large)
        assert connection.execute("SELECT count(*) FROM generate_series(1, 9)").fetchone() == (9,)
        edit(admin, "64MB</MaxMemory>", "1GB</MaxMemory><MaxThreads>1</MaxThreads>")
        lines = reloaded(admin)
        assert {line.partition(":")[0] for line in lines} >= {"SQL/MaxMemory", "SQL/MaxThreads"}
        assert connection.execute(large).fetchone() == (4_000_000,)


def test_other_modules_are_for_new_connections_only(admin: Admin, tmp_path: Path) -> None:
    """Also a token that was granted before is none any more."""
    write_users(tmp_path, USERS)
    add(admin, POSTGRES, FLIGHT_SQL)
    client = flight_server(admin).raw()
    token = client.authenticate_basic_token("anybody", "")[1].decode().removeprefix("Bearer ")
    edit(admin, "</AMPSConfig>", f"{LOADED}</AMPSConfig>")
    for text in (POSTGRES, FLIGHT_SQL):
        edit(admin, text, text.replace("</Transport>", f"{FOR_TRANSPORT}</Transport>"))
    sql = SqlServer(admin.server, SQL_PORT)
    with sql.connect() as before:
        reloaded(admin)
        with pytest.raises(psycopg.Error):
            before.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        sql.connect(user="ann", password="bob")
    with sql.connect(user="ann", password="ann") as ann:
        assert ann.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    again = flight_server(admin).raw()
    with pytest.raises(Exception, match=r"(?i)unauthenticated"):
        list(again.list_flights(options=bearer(token)))
    assert again.authenticate_basic_token("ann", "ann")[1]
    assert of_console(admin) == ""  # the admin interface has other modules


def test_random_edits_are_whole_or_refused(admin: Admin) -> None:
    """A model has the transports that the instance runs; a certificate that is missing refuses."""
    chances = random.Random(3)
    original = configuration(admin.server).read_text()
    broken = TRANSPORT.replace("<Name>sql<", "<Name>broken<").format(
        port=free_port(),
        type="tcps",
        elements="<Certificate>missing</Certificate><PrivateKey>missing</PrivateKey>",
    )
    runs: set[str] = set()
    for _ in range(10):
        wanted = {name for name in (POSTGRES, FLIGHT_SQL, broken) if chances.random() < 0.4}
        configuration(admin.server).write_text(original.replace(END, "".join(wanted) + END))
        if broken in wanted:
            assert "cannot be secured" in refused(admin)
        else:
            reloaded(admin)
            runs = wanted
        assert of_console(admin) == ("sql" if POSTGRES in runs else "")
        if POSTGRES in runs:
            assert count(admin) == 0
        if FLIGHT_SQL in runs:
            assert flight_server(admin).query("SELECT 1 AS n") == [{"n": 1}]
