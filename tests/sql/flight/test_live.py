"""SUBSCRIBE as a stream of Flight, and the cancellation of streams and queries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.sql.flight.support import FlightServer, field, flight_server, query_command
from tests.sql.support import ORDERS
from tests.sql.test_live_as_of import TOPICS as LOGGED
from tests.support.waiting import comes_true

NUMBERS = "generate_series(1, 1000000)"
ENDLESS = f"SELECT sum(a.g * b.g) FROM {NUMBERS} a(g), {NUMBERS} b(g)"
CANCELLED, NOT_CANCELLABLE = b"\x08\x01", b"\x08\x03"
LARGE = f"SELECT a.g, repeat('x', 1000) FROM {NUMBERS} a(g), {NUMBERS} b(g)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FlightServer]:
    """A server of its own for each test: they count entries of its log."""
    with flight_server(tmp_path) as running:
        running.sql.publish("orders", *ORDERS[:3])
        yield running


def rows_of(reader: flight.FlightStreamReader, count: int) -> list[dict[str, Any]]:
    """The next rows of a stream, without the time."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        rows += reader.read_chunk().data.drop_columns(["_time"]).to_pylist()
    return rows


def open_stream(client: flight.FlightClient, text: str) -> flight.FlightStreamReader:
    info = client.get_flight_info(flight.FlightDescriptor.for_command(query_command(text)))
    return client.do_get(info.endpoints[0].ticket)


def test_a_subscription_is_a_stream_until_it_is_cancelled(server: FlightServer) -> None:
    with server.raw() as client:
        query = "SUBSCRIBE (SELECT id, qty AS quantity FROM orders WHERE qty >= 10)"
        reader = open_stream(client, query)
        assert reader.schema == pa.schema(
            {
                "_time": pa.timestamp("us", "UTC"),
                "_diff": pa.int64(),
                "id": pa.int64(),
                "quantity": pa.int64(),
            }
        )
        present = rows_of(reader, 2)
        assert sorted(row["id"] for row in present) == [1, 2]
        server.sql.publish(
            "orders", {"id": 1, "qty": 15}, {"id": 2, "qty": 5}, {"id": 9, "qty": 90}
        )
        assert rows_of(reader, 4) == [
            {"_diff": -1, "id": 1, "quantity": 10},
            {"_diff": 1, "id": 1, "quantity": 15},
            {"_diff": -1, "id": 2, "quantity": 20},
            {"_diff": 1, "id": 9, "quantity": 90},
        ]
        reader.cancel()
        assert server.sql.server.logs("14-0002")  # the subscription has ended
        assert server.sql.server.logs("canceling statement due to user request")


def test_adbc_reads_a_subscription(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SUBSCRIBE TO orders WITH (snapshot = false)")
        assert server.sql.server.logs("sql subscribe entered", 2)  # the first one was described
        server.sql.publish("orders", {"id": 77, "qty": 1})
        batch = cursor.fetch_record_batch().read_next_batch()
        assert batch.column("id").to_pylist() == [77]
        cursor.adbc_cancel()
        assert server.sql.server.logs("canceling statement due to user request")


def test_topics_without_records_are_followed(server: FlightServer) -> None:
    with server.raw() as client:
        reader = open_stream(client, "SUBSCRIBE TO ticks;")
        assert server.sql.server.logs("sql subscribe entered", 2)
        server.sql.publish("ticks", {"price": 1})
        assert rows_of(reader, 1) == [{"_diff": 1, "_body": '{"price": 1}'}]
        reader.cancel()


def test_a_subscription_begins_in_the_past(tmp_path: Path) -> None:
    with flight_server(tmp_path, topics=LOGGED) as server, server.raw() as client:
        server.sql.publish("orders", {"id": 1, "qty": 1}, {"id": 1, "qty": 2}, {"id": 2, "qty": 3})
        reader = open_stream(client, "SUBSCRIBE (SELECT id, qty FROM orders) AS OF BOOKMARK '0'")
        assert [tuple(row.values()) for row in rows_of(reader, 4)] == [
            *((1, 1, 1), (-1, 1, 1), (1, 1, 2), (1, 2, 3))
        ]
        server.sql.publish("orders", {"id": 2, "qty": 4})
        assert [tuple(row.values()) for row in rows_of(reader, 2)] == [(-1, 2, 3), (1, 2, 4)]
        reader.cancel()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SUBSCRIBE TO", "syntax error"),
        ("SUBSCRIBE (SELECT count(*) FROM orders)", "SQLSTATE 0A000, position 19"),
        ("SUBSCRIBE (SELECT nothing FROM orders)", 'column "nothing" does not exist'),
        ("SUBSCRIBE TO orders) TO STDOUT; SELECT (1", "syntax error"),
    ],
)
def test_subscriptions_that_are_wrong(server: FlightServer, statement: str, message: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error) as failed:
            cursor.execute(statement)
        assert message in str(failed.value)


def test_a_client_cancels_its_query(server: FlightServer) -> None:
    with server.raw() as client:
        command = flight.FlightDescriptor.for_command(query_command(ENDLESS))
        info = client.get_flight_info(command)
        failures: list[Exception] = []

        def read() -> None:
            try:
                client.do_get(info.endpoints[0].ticket).read_all()
            except flight.FlightCancelledError as error:
                failures.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        assert comes_true(lambda: cancel(client, info) == CANCELLED)
        thread.join()
        assert "canceling statement due to user request (SQLSTATE 57014)" in str(failures[0])
        assert cancel(client, info) == NOT_CANCELLABLE


def cancel(client: flight.FlightClient, info: flight.FlightInfo) -> bytes:
    """Cancel a query; the answer has a CancelStatus."""
    action = flight.Action("CancelFlightInfo", field(1, info.serialize()))
    (result,) = client.do_action(action)
    answer: bytes = result.body.to_pybytes()
    return answer


def test_a_lost_connection_ends_its_queries(server: FlightServer) -> None:
    client = server.raw()
    readers = [open_stream(client, text) for text in (LARGE, "SUBSCRIBE TO orders")]
    readers[0].read_chunk()
    readers[1].read_chunk()
    del readers
    client.close()
    assert server.sql.server.logs("canceling statement due to user request", 2)


def test_a_client_that_does_not_read_holds_nobody_up(server: FlightServer) -> None:
    with server.raw() as slow:
        readers = [open_stream(slow, LARGE) for _ in range(6)]  # more than there are threads
        for reader in readers:
            reader.read_chunk()
        assert server.query("SELECT count(*) AS n FROM orders") == [{"n": 3}]
        for reader in readers:
            reader.cancel()


def test_a_client_has_ten_results_at_most(server: FlightServer) -> None:
    with server.raw() as client:
        readers = [open_stream(client, "SUBSCRIBE TO orders") for _ in range(10)]
        for reader in readers:
            reader.read_chunk()
        with pytest.raises(pa.ArrowException, match="at most 10 results open"):
            open_stream(client, "SELECT 1").read_all()
        assert server.query("SELECT 1 AS one") == [{"one": 1}]
        for reader in readers:
            reader.cancel()
        assert comes_true(lambda: _can_query(client))


def _can_query(client: flight.FlightClient) -> bool:
    try:
        open_stream(client, "SELECT 1").read_all()
    except pa.ArrowException:
        return False
    return True


def test_the_server_stops_with_open_streams(server: FlightServer) -> None:
    with server.raw() as client:
        readers = [open_stream(client, text) for text in (LARGE, "SUBSCRIBE TO orders")]
        readers[0].read_chunk()
        readers[1].read_chunk()
        assert server.sql.server.stop() == 0
        for reader in readers:
            with pytest.raises((flight.FlightError, OSError, pa.ArrowException)):
                reader.read_all()
    assert "16-0034" not in server.sql.server.log()
