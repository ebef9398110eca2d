"""Statements that write: INSERT, UPDATE and DELETE by ADBC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from pyarrow import flight

from tests.sql.flight.support import FlightServer, flight_server
from tests.sql.support import ORDERS


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightServer]:
    with flight_server(tmp_path_factory.mktemp("flight")) as server:
        yield server


@pytest.fixture
def server(running: FlightServer) -> FlightServer:
    """The server, with ten orders and nothing else."""
    with running.sql.server.log_on("publisher") as peer:
        peer.send({"c": "sow_delete", "t": "orders", "filter": "1 = 1", "a": "completed"})
        peer.receive()
    running.sql.publish("orders", *ORDERS[:10])
    return running


def test_statements_write_and_say_how_many_rows(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement, count in (
            ("INSERT INTO orders (id, symbol) VALUES (100, 'X'), (101, 'Y')", 2),
            ("UPDATE orders SET qty = 7 WHERE symbol = 'IBM'", 5),
            ("DELETE FROM orders WHERE id = 100", 1),
            ("DELETE FROM orders WHERE id = 100", 0),
        ):
            cursor.execute(statement)
            assert cursor.fetchall() == [(count,)]
        cursor.execute("SELECT count(*), sum(qty) FILTER (WHERE symbol = 'IBM') FROM orders")
        assert cursor.fetchall() == [(11, 35)]


def test_returning_has_the_rows_as_written(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders (id, symbol) VALUES (100, 'X') RETURNING id + 1 AS next, symbol"
        )
        assert cursor.fetch_arrow_table().to_pylist() == [{"next": 101, "symbol": "X"}]
        cursor.execute("UPDATE orders SET qty = $1 WHERE id = 100 RETURNING qty", (8,))
        assert cursor.fetchall() == [(8,)]
        cursor.execute("DELETE FROM orders WHERE symbol = 'X' RETURNING *")
        assert [row["id"] for row in cursor.fetch_arrow_table().to_pylist()] == [100]
        cursor.execute("DELETE FROM orders WHERE symbol = 'X' RETURNING id")
        assert cursor.fetchall() == []
        cursor.execute("SELECT count(*) FROM orders")
        assert cursor.fetchall() == [(10,)]


def test_updates_take_effect_without_a_fetch(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM orders")
    assert server.query("SELECT count(*) AS n FROM orders") == [{"n": 0}]


def test_many_rows_of_parameters_are_as_many_executions(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        rows = [(number, f"S{number}", number / 2) for number in range(200, 260)]
        cursor.executemany("INSERT INTO orders (id, symbol, price) VALUES ($1, $2, $3)", rows)
        assert cursor.rowcount == 60
        cursor.execute("SELECT id, symbol, price FROM orders WHERE id >= 200 ORDER BY id")
        assert cursor.fetchall() == rows
        cursor.executemany(
            "UPDATE orders SET qty = 1 WHERE id = $1", pa.table({"id": [200, 5, 999]})
        )
        assert cursor.rowcount == 2


def test_a_statement_with_parameters_writes(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (id, symbol) VALUES ($1, $2)", (300, None))
        assert cursor.fetchall() == [(1,)]
    assert server.query("SELECT _body FROM orders WHERE id = 300") == [{"_body": '{"id":300}'}]


def test_an_error_in_a_row_says_what_was_written(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error, match="SQLSTATE 23502"):
            cursor.executemany("INSERT INTO orders (id) VALUES ($1)", [(400,), (None,), (401,)])
        cursor.execute("SELECT id FROM orders WHERE id >= 400")
        assert cursor.fetchall() == [(400,)]


def test_a_query_takes_one_row_of_parameters(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        table = pa.table({"id": [1, 2]})
        with pytest.raises(adbc_driver_manager.NotSupportedError, match="one row of parameters"):
            cursor.execute("SELECT id FROM orders WHERE id = $1", table)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"a": 1}]),
        pa.array(["x"]).dictionary_encode(),
        pa.array([[[1]]]),
    ],
)
def test_parameters_of_other_types_are_refused(server: FlightServer, values: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.NotSupportedError, match="cannot have the type"):
            cursor.execute("SELECT $1::text", pa.table({"1": values}))
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_transactions_are_refused(server: FlightServer) -> None:
    with pytest.warns(Warning, match="Cannot disable autocommit"):
        connection = dbapi.connect(server.address)
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (id) VALUES (500)")
        assert cursor.fetchall() == [(1,)]
    with server.raw() as client, pytest.raises(pa.ArrowNotImplementedError) as refused:
        list(client.do_action(flight.Action("BeginTransaction", b"")))
    assert "no transactions on this server (SQLSTATE 0A000)" in str(refused.value)


def test_notify_publishes(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("""NOTIFY orders, '{"id": 600}'""")
        assert cursor.fetchall() == [(None,)]
        cursor.execute("""SELECT pg_notify('orders', '{"id": 601}')""")
        cursor.fetchall()
        cursor.execute("SELECT count(*) FROM orders WHERE id >= 600")
        assert cursor.fetchall() == [(2,)]
