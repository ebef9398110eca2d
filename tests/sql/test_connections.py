"""Connections for SQL: passwords, entitlement, TLS, cancel, slow readers, limits and statistics."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config_schema.problems import Problems
from server.app.wiring import sql_transports
from server.sql.statement_executor import MAX_OPEN_RESULTS
from tests.admin.support import ask
from tests.config_schema.test_compile_spec import compile_text
from tests.security.test_http_services import self_signed
from tests.sql.support import ANN, ORDERS, PRICES, SqlServer, sql_server, user
from tests.support.server import amp_server, free_port
from tests.support.waiting import comes_true

ADMIN = "<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>"

USERS = (
    ANN
    + user(
        "bob",
        '{ topic = "orders", read = "/symbol = \'IBM\'", select = "-/price" }',
        '{ topic = "positions", read = false }',
    )
    + user("carol", logon=False)
)


def test_a_server_without_topics_does_without_pandas(tmp_path: Path) -> None:
    """Arrow imports it with its first array, where it is installed: a third of a second."""
    pytest.importorskip("pandas")
    with sql_server(tmp_path, topics="") as sql:
        with sql.connect() as connection:
            assert connection.execute("SELECT 'a', ARRAY[1, 2]").fetchall() == [("a", [1, 2])]
        maps = Path(f"/proc/{sql.server.process.pid}/maps").read_text()
    assert "pyarrow" in maps
    assert "pandas" not in maps


def test_users_see_what_they_may_read(tmp_path: Path) -> None:
    with sql_server(tmp_path, users=USERS) as sql:
        sql.publish("orders", *ORDERS, user_id="ann", pw="ann")
        sql.publish("prices", *PRICES, user_id="ann", pw="ann")
        everything = sql.psql(r"\dt", "SELECT count(*) FROM orders", user="ann", password="ann")
        assert everything.stdout.split() == [
            "amps|orders|table|ann",
            "amps|prices|table|ann",
            "50",
        ]
        own = sql.psql(
            r"\d",
            "SELECT count(*), min(symbol), max(symbol) FROM orders",
            "SELECT _body FROM orders WHERE id = 2",
            user="bob",
            password="bob",
        )
        assert own.stdout.split("\n") == [
            "amps|orders|table|bob",
            "25|IBM|IBM",
            '{"id":2,"symbol":"IBM","qty":20,"live":false}',
            "",
        ]
        for query, message in (
            ("SELECT price FROM orders", 'column "price" does not exist'),
            ("SELECT 1 FROM prices", 'relation "prices" does not exist'),
            ("SELECT 1 FROM positions", 'relation "positions" does not exist'),
        ):
            assert message in sql.psql(query, user="bob", password="bob").stderr
        explained = sql.psql(
            "EXPLAIN ANALYZE SELECT id FROM orders WHERE qty < 100", user="bob", password="bob"
        )
        assert "50" not in explained.stdout
        for user, password in (("bob", "ann"), ("carol", "carol"), ("nobody", "x")):
            refused = sql.psql("SELECT 1", user=user, password=password)
            assert refused.returncode == 2
            assert f'authentication failed for user "{user}"' in refused.stderr
        assert sql.server.logs("User 'bob' has logged on")


def test_names_of_hidden_fields_change_no_name_of_a_column(tmp_path: Path) -> None:
    """A field whose name differs in case from that of a visible one."""
    topic = '{ topic = "orders", read = true, select = "-/,+/id,+/symbol" }'
    with sql_server(
        tmp_path, users=USERS.replace("logon = false", f"logon = true\ntopic = [{topic}]")
    ) as sql:
        record = {"id": 1, "Symbol": "hidden", "symbol": "IBM"}
        sql.publish("orders", record, user_id="ann", pw="ann")
        columns = "SELECT column_name FROM information_schema.columns WHERE column_name ~* '^symb'"
        own = sql.psql(columns, "SELECT symbol FROM orders", user="carol", password="carol")
        assert own.stdout.split() == ["symbol", "IBM"]


def test_connections_are_upgraded_to_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    elements = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    with sql_server(tmp_path, transport_type="tcps", transport_elements=elements) as sql:
        with sql.connect(sslmode="require") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.pgconn.ssl_in_use
        with pytest.raises(psycopg.OperationalError, match="requires TLS"):
            sql.connect(sslmode="disable")


def test_without_tls_clients_go_on_without(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        with sql.connect(sslmode="prefer") as connection:
            assert not connection.pgconn.ssl_in_use
        with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
            sql.connect(sslmode="require")


SLOW = (
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e"
    " WHERE a.id + b.id + c.id + d.id < e.id * 0.001"
)


def test_statements_are_cancelled(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        sql.publish("orders", *ORDERS)
        with sql.connect() as connection:
            threading.Timer(0.5, connection.cancel).start()
            started = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                connection.execute(SLOW)
            assert time.monotonic() - started < 10
            assert connection.execute("SELECT count(*) FROM orders").fetchone() == (50,)
            connection.execute("SET statement_timeout = '300ms'")
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(SLOW)
            connection.execute("SET statement_timeout = 0")
            threading.Timer(0.5, connection.cancel).start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                connection.execute(f"DECLARE c CURSOR WITH HOLD FOR {SLOW}")
            assert connection.execute("SELECT count(*) FROM orders").fetchone() == (50,)
        assert sql.server.logs("SQL statement cancelled", 3)


def test_clients_that_leave_during_a_statement_stop_it(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        sql.publish("orders", *ORDERS)
        connections = [_opened(sql) for _ in range(6)]
        for connection in connections:
            connection.sendall(_query(SLOW))
        time.sleep(0.5)
        for connection in connections:
            connection.close()
        assert sql.psql("SELECT count(*) FROM orders").stdout == "50\n"
        assert sql.server.logs("disconnected. Reason: connection closed", 8)  # with publisher, psql


def test_results_of_a_client_that_are_open_are_limited(tmp_path: Path) -> None:
    """Those that have been read to their end do not count."""
    declare = "DECLARE {} CURSOR WITH HOLD FOR SELECT i FROM generate_series(1, 10000) g(i)"
    with sql_server(tmp_path) as sql, sql.connect() as connection:
        for number in range(MAX_OPEN_RESULTS):
            connection.execute(declare.format(f"c{number}"))
        with pytest.raises(psycopg.errors.Error, match="at most 10 results open"):
            connection.execute(declare.format("another"))
        connection.execute("CLOSE c0")
        connection.execute(declare.format("another"))
        assert len(connection.execute("FETCH ALL FROM c1").fetchall()) == 10_000
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_clients_that_do_not_read_occupy_no_thread(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        sql.publish("orders", *ORDERS)
        connections = [_opened(sql) for _ in range(8)]
        for connection in connections:
            connection.sendall(_query("SELECT a.*, b.* FROM orders a, orders b, orders c"))
        assert sql.psql("SELECT count(*) FROM orders").stdout == "50\n"
        received = 0
        connection = connections[0]
        while not (data := connection.recv(1 << 20)).endswith(b"Z\0\0\0\5I"):
            received += len(data)
        assert received > 10_000_000
        for connection in connections:
            connection.close()


def test_clients_are_shown_and_counted(tmp_path: Path) -> None:
    port = free_port()
    with sql_server(tmp_path, elements=ADMIN.format(port=port)) as sql:
        sql.publish("orders", *ORDERS)
        with sql.connect(application_name="report") as connection:
            connection.execute("SELECT * FROM orders").fetchall()

            def shown() -> list[dict[str, str]]:
                reply = ask(port, "/amps/instance/clients.json")
                clients = json.loads(reply.body)["amps"]["instance"]["clients"]
                return [client for client in clients if client["client_name"].startswith("report-")]

            assert comes_true(lambda: bool(shown()) and int(shown()[0]["messages_out"]) == 50)
            assert int(shown()[0]["bytes_out"]) > 3000
            assert int(shown()[0]["bytes_in"]) > 50
            ask(port, "/amps/administrator/transports/sql/disable")
            assert comes_true(lambda: _fails(connection, "terminating connection"))
        with pytest.raises(psycopg.OperationalError, match="refused"):
            sql.connect()


def test_texts_of_clients_do_not_fill_the_log(tmp_path: Path) -> None:
    with sql_server(tmp_path) as sql:
        name = "evil\n\x1b[2J\u2028" + "n" * 300
        with sql.connect(application_name=name, options="-c x" + "y" * 5000 + "=1") as connection:
            for number in range(30):
                unknown = f"pg_{'u' * 1000}{number}"
                connection.execute(f"SELECT * FROM pg_catalog.{unknown}").fetchall()
        assert sql.server.logs("answered in part", 10)
        assert sql.server.logs("of the connection ignored", 1)
        lines = [line for line in sql.server.log().splitlines() if "16-003" in line]
        assert len(lines) == 11
        assert all(len(line) < 900 for line in lines)
        assert all("evil??[2J?nnn" in line for line in lines)
        assert "\x1b" not in sql.server.log()


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\4",
        b"\x7f\xff\xff\xff\0\3\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x08\0\3\0\0",
        b"\0\0\0\x23" + b'{"c":"logon","cid":"1","mt":"json"}',
    ],
)
def test_clients_that_speak_something_else_are_disconnected(tmp_path: Path, data: bytes) -> None:
    with sql_server(tmp_path) as sql:
        with socket.create_connection(("127.0.0.1", sql.port)) as connection:
            connection.sendall(data)
            connection.settimeout(10)
            answer = connection.recv(1000)
            assert answer == b"" or answer.startswith(b"E")
        assert sql.psql("SELECT 1").stdout == "1\n"
        assert "Traceback" not in sql.server.log()


def test_a_configuration_is_verified(tmp_path: Path) -> None:
    configuration = tmp_path / "config.xml"
    configuration.write_text(
        "<AMPSConfig><Name>x</Name><Transports><Transport><Name>sql</Name><Type>tcp</Type>"
        "<InetAddr>127.0.0.1:5433</InetAddr><Protocol>postgresql</Protocol></Transport>"
        "</Transports></AMPSConfig>"
    )
    assert amp_server("--verify-config", configuration).returncode == 0


def _fails(connection: psycopg.Connection[Any], text: str) -> bool:
    """Whether the server has ended a connection, with a text."""
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError as error:
        return text in str(error)
    return False


def _opened(sql: SqlServer) -> socket.socket:
    """A connection without a driver, which has logged on."""
    connection = socket.create_connection(("127.0.0.1", sql.port))
    content = b"\0\3\0\0user\0tester\0\0"
    connection.sendall(struct.pack(">I", len(content) + 4) + content)
    received = b""
    while not received.endswith(b"Z\0\0\0\5I"):
        data = connection.recv(10_000)
        assert data
        received += data
    return connection


def _query(text: str) -> bytes:
    content = text.encode() + b"\0"
    return b"Q" + struct.pack(">I", len(content) + 4) + content


@pytest.mark.parametrize(
    ("protocol", "library"), [("postgresql", "duckdb"), ("flight-sql", "grpc")]
)
def test_missing_libraries_are_reported_with_what_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, library: str
) -> None:
    spec = compile_text(
        "<AMPSConfig><Name>x</Name><Transports><Transport><Name>sql</Name><Type>tcp</Type>"
        f"<InetAddr>127.0.0.1:5433</InetAddr><Protocol>{protocol}</Protocol></Transport>"
        "</Transports></AMPSConfig>",
        tmp_path,
    )
    monkeypatch.setattr(
        sql_transports, "find_spec", lambda name: None if name == library else object()
    )
    problems = Problems()
    sql_transports.check_sql_libraries(spec, problems)
    (problem,) = problems
    assert f"needs {library}, which is not installed" in str(problem)
    assert "pip install 'amperage[sql]'" in str(problem)
