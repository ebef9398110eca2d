"""Queries by ADBC: results as Arrow tables, parameters, the catalogue, errors."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.sql.flight.support import FlightServer, flight_server, query_command
from tests.sql.support import ORDERS, PRICES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightServer]:
    with flight_server(tmp_path_factory.mktemp("flight")) as running:
        running.sql.publish("orders", *ORDERS)
        running.sql.publish("prices", *PRICES)
        yield running


@pytest.fixture
def cursor(server: FlightServer) -> Iterator[Any]:
    with server.connect() as connection, connection.cursor() as opened:
        yield opened


def test_a_query_has_columns_of_arrow(cursor: Any) -> None:
    cursor.execute(
        "SELECT id, symbol, qty * bid AS value, live FROM orders JOIN prices USING (symbol)"
        " WHERE id < 3 ORDER BY id"
    )
    table = cursor.fetch_arrow_table()
    assert table.schema == pa.schema(
        {"id": pa.int64(), "symbol": pa.string(), "value": pa.float64(), "live": pa.bool_()}
    )
    assert table.to_pydict() == {
        "id": [0, 1, 2],
        "symbol": ["IBM", "MSFT", "IBM"],
        "value": [0.0, 4102.5, 2410.0],
        "live": [True, False, False],
    }


TYPES = {
    "true": pa.bool_(),
    "1::smallint": pa.int16(),
    "1": pa.int32(),
    "1::bigint": pa.int64(),
    "sum(1::bigint)": pa.decimal128(38, 0),
    "1::real": pa.float32(),
    "1::double precision": pa.float64(),
    "1.50": pa.decimal128(3, 2),
    "1.5::numeric": pa.decimal128(38, 9),
    "'a'": pa.string(),
    "'a'::bytea": pa.binary(),
    "date '2026-01-01'": pa.date32(),
    "time '10:00'": pa.time64("us"),
    "timestamp '2026-01-01'": pa.timestamp("us"),
    "now()": pa.timestamp("us", "UTC"),
    "interval '1 day'": pa.month_day_nano_interval(),
    "'{}'::json": pa.string(),
    "'1b4e28ba-2fa1-11d2-883f-0016d3cca427'::uuid": pa.string(),
    "ARRAY[1, 2]": pa.list_(pa.int32()),
    "ARRAY['a']": pa.list_(pa.string()),
    "ARRAY[ARRAY[1]]": pa.list_(pa.list_(pa.int32())),
    "ARRAY[ROW(1)]": pa.string(),
    "ARRAY[1.5]": pa.list_(pa.decimal128(2, 1)),
    "'i'::\"char\"": pa.string(),
    "NULL": pa.string(),
}


@pytest.mark.parametrize("is_empty", [False, True])
def test_columns_have_the_types_that_they_are_announced_with(
    cursor: Any, *, is_empty: bool
) -> None:
    """The client refuses a stream with another schema than its FlightInfo."""
    limit = " LIMIT 0" if is_empty else ""
    for expression, kind in TYPES.items():
        cursor.execute(f"SELECT {expression} AS value{limit}")
        table = cursor.fetch_arrow_table()
        assert (expression, table.schema.field("value").type) == (expression, kind)
        assert table.num_rows == (0 if is_empty else 1)


def test_large_results_are_streams_of_batches(cursor: Any) -> None:
    cursor.execute("SELECT g, repeat('x', 50) AS text FROM generate_series(1, 300000) g")
    count = total = 0
    for batch in cursor.fetch_record_batch():
        count += 1
        total += sum(batch.column("g").to_pylist())
    assert count > 10
    assert total == 300_000 * 300_001 // 2


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("$1::bigint + 1", 41),
        ("$1::text", "ça"),
        ("$1::double precision", 1.5),
        ("$1::numeric", Decimal("1.500000000")),
        ("$1::boolean", True),
        ("$1::bytea", b"\0\xff"),
        ("$1::date", datetime.date(2026, 1, 2)),
        ("$1::timestamp", datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
        ("$1::text", None),
    ],
)
def test_parameters_have_their_types(cursor: Any, expression: str, value: object) -> None:
    cursor.execute(f"SELECT {expression}", (value,))
    expected = 42 if value == 41 else value
    assert cursor.fetchall() == [(expected,)]


def test_a_prepared_query_is_executed_with_other_parameters(cursor: Any) -> None:
    query = "SELECT count(*) FROM orders WHERE symbol = $1 AND qty >= $2"
    for parameters, count in ((("IBM", 0), 25), (("IBM", 400), 5), (("none", 0), 0)):
        cursor.execute(query, parameters)
        assert cursor.fetchall() == [(count,)]


def test_parameters_that_are_missing_are_an_error(cursor: Any) -> None:
    with pytest.raises(adbc_driver_manager.Error, match="requires 1 parameters, 0 were supplied"):
        cursor.execute("SELECT $1::bigint")


def test_the_catalogue_has_schemas_tables_and_columns(server: FlightServer) -> None:
    with server.connect() as connection:
        (catalogue,) = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        assert catalogue["catalog_name"] == "test-instance"
        (schema,) = catalogue["catalog_db_schemas"]
        assert schema["db_schema_name"] == "amps"
        tables = {one["table_name"]: one for one in schema["db_schema_tables"]}
        assert {name: one["table_type"] for name, one in tables.items()} == {
            "orders": "TABLE",
            "prices": "TABLE",
            "positions": "VIEW",
        }
        columns = [column["column_name"] for column in tables["prices"]["table_columns"]]
        assert columns[:2] == ["symbol", "bid"]
        assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE", "VIEW"]
        schema = connection.adbc_get_table_schema("orders")
        assert schema.field("qty").type == pa.int64()
        assert schema.field("_timestamp").type == pa.timestamp("us", "UTC")
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "Amperage"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("p%", ["positions", "prices"]),
        ("%i%s", ["positions", "prices"]),
        ("orde__", ["orders"]),
        ("orde_", []),
        ("%", ["orders", "positions", "prices"]),
        ("%r%r%", ["orders"]),
        ("", []),
    ],
)
def test_names_of_tables_are_found_by_patterns(
    server: FlightServer, pattern: str, names: list[str]
) -> None:
    with server.connect() as connection:
        found = connection.adbc_get_objects(depth="tables", table_name_filter=pattern)
        assert names == sorted(
            table["table_name"]
            for catalogue in found.read_all().to_pylist()
            for schema in catalogue["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        )


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("SELECT x FROM orders", "ProgrammingError", "exist (SQLSTATE 42703, position 8)"),
        ("SELECT 1 FROM nothing", "ProgrammingError", "exist (SQLSTATE 42P01, position 15)"),
        ("SELEC 1", "ProgrammingError", "syntax error"),
        (" -- nothing", "ProgrammingError", "a call executes one statement (SQLSTATE 42601)"),
        ("SELECT 1; SELECT 2", "ProgrammingError", "a call executes one statement"),
        ("BEGIN", "NotSupportedError", "has no transactions on this server (SQLSTATE 0A000)"),
        ("CREATE TABLE x (y int)", "NotSupportedError", "HINT: Topics, views"),
        ("COPY orders TO STDOUT", "NotSupportedError", "is not a statement of Flight SQL"),
    ],
)  # fmt: skip
def test_errors_have_a_sqlstate_and_a_position(
    cursor: Any, statement: str, kind: str, message: str
) -> None:
    with pytest.raises(getattr(adbc_driver_manager, kind)) as failed:
        cursor.execute(statement)
    assert message in str(failed.value)
    assert "Traceback" not in str(failed.value)
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]


def test_an_error_in_a_row_ends_the_stream(cursor: Any) -> None:
    cursor.execute("SELECT g, 1 / (500000 - g) FROM generate_series(1, 1000000) g")
    with pytest.raises(adbc_driver_manager.Error, match="SQLSTATE 22012"):
        cursor.fetch_arrow_table()


def test_settings_hold_for_the_session(server: FlightServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET application_name = 'desk'")
        cursor.execute("SHOW application_name")
        assert cursor.fetchall() == [("desk",)]
        cursor.execute("SET statement_timeout = '50ms'")
        numbers = "generate_series(1, 200000)"
        cursor.execute(f"SELECT sum(a.g * b.g) FROM {numbers} a(g), {numbers} b(g)")
        with pytest.raises(adbc_driver_manager.Error, match="statement timeout"):
            cursor.fetchall()


def test_explain_tells_the_scans(cursor: Any) -> None:
    cursor.execute("EXPLAIN SELECT id FROM orders WHERE qty > 5")
    assert any("orders" in line for (line,) in cursor.fetchall())


def test_a_column_that_was_widened_after_the_description(server: FlightServer, cursor: Any) -> None:
    query = "SELECT qty FROM orders WHERE id = 7"
    cursor.execute(query)
    assert cursor.fetchall() == [(70,)]
    with server.raw() as client:
        command = flight.FlightDescriptor.for_command(query_command(query))
        info = client.get_flight_info(command)
        server.sql.publish("orders", ORDERS[7] | {"qty": "many"})
        with pytest.raises(flight.FlightError, match="must not change result type"):
            client.do_get(info.endpoints[0].ticket).read_all()
        info = client.get_flight_info(command)
        table = client.do_get(info.endpoints[0].ticket).read_all()
        assert table.to_pylist() == [{"qty": "many"}]
    with pytest.raises(adbc_driver_manager.OperationalError, match="HINT: Execute the statement"):
        cursor.execute(query).fetchall()
    cursor.execute(query)
    assert cursor.fetchall() == [("many",)]


def test_a_write_whose_result_has_changed_writes_nothing(server: FlightServer, cursor: Any) -> None:
    insert = "INSERT INTO prices (symbol, bid) VALUES ($1, 7) RETURNING bid"
    cursor.execute(insert, ("old",))
    assert cursor.fetchall() == [(7.0,)]
    server.sql.publish("prices", {"symbol": "ASML", "bid": "none"})
    with suppress(adbc_driver_manager.OperationalError):
        server.query("SELECT bid FROM prices")  # meets the value
    with pytest.raises(adbc_driver_manager.OperationalError, match="must not change result type"):
        cursor.execute(insert, ("new",)).fetchall()
    assert server.query("SELECT symbol FROM prices WHERE symbol = 'new'") == []
    cursor.execute(insert, ("new",))
    assert cursor.fetchall() == [("7",)]
