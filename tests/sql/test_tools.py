"""ADBC, ODBC, pandas and exports by COPY against a server process."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.sql.support import ORDERS, PRICES, SqlServer, sql_server

ODBC_FOLDERS = [
    *os.environ.get("LD_LIBRARY_PATH", "").split(":"),
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"),
]
"""Where distributions install the driver of psqlODBC, or `odbc` in them."""


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish("orders", *ORDERS)
        server.publish("prices", *PRICES)
        yield server


@pytest.fixture
def adbc(sql: SqlServer) -> Iterator[Any]:
    """A connection of ADBC's driver for PostgreSQL; the database is that of the instance."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with sql.connect() as client:
        row = client.execute("SELECT current_database()").fetchone()
    assert row is not None
    url = f"postgresql://tester@127.0.0.1:{sql.port}/{row[0]}?sslmode=disable"
    with closing(dbapi.connect(url, autocommit=True)) as connection:
        yield connection


def test_adbc_reads_arrow_tables(adbc: Any) -> None:
    """It reads results by COPY in binary format, with the types of the catalogue."""
    with adbc.cursor() as cursor:
        cursor.execute("SELECT id, symbol, price, live, _timestamp FROM orders ORDER BY id")
        table = cursor.fetch_arrow_table()
        assert [str(field.type) for field in table.schema] == [
            *("int64", "string", "double", "bool", "timestamp[us, tz=UTC]")
        ]
        assert table.select(["id", "symbol", "price", "live"]).to_pylist() == [
            {name: order[name] for name in ("id", "symbol", "price", "live")} for order in ORDERS
        ]
        cursor.execute("SELECT id FROM orders WHERE symbol = $1 AND qty > $2", ("IBM", 460))
        assert cursor.fetchall() == [(48,)]


def test_adbc_lists_tables_and_columns(adbc: Any) -> None:
    (catalogue,) = adbc.adbc_get_objects(db_schema_filter="amps").read_all().to_pylist()
    (schema,) = catalogue["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {name: table["table_type"] for name, table in tables.items()} == {
        "orders": "table",
        "prices": "table",
        "positions": "view",
    }
    columns = {column["column_name"] for column in tables["prices"]["table_columns"]}
    assert columns >= {"symbol", "bid", "_key"}
    (constraint,) = tables["orders"]["table_constraints"]
    assert constraint["constraint_column_names"] == ["id"]
    schema = adbc.adbc_get_table_schema("orders", db_schema_filter="amps")
    assert str(schema.field("id").type) == "int64"


def test_adbc_writes_rows_and_gets_them_back(adbc: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.executemany("INSERT INTO prices (symbol, bid) VALUES ($1, $2)", [("X", 1.5)])
        cursor.execute("DELETE FROM prices WHERE symbol = 'X' RETURNING bid")
        assert cursor.fetchall() == [(1.5,)]


def odbc_driver() -> Path | None:
    """Return psqlODBC's driver; None if it is not installed."""
    for folder in ODBC_FOLDERS:
        for place in ("odbc/psqlodbcw.so", "psqlodbcw.so"):
            if folder and (Path(folder) / place).is_file():
                return Path(folder) / place
    return None


@pytest.fixture
def odbc(sql: SqlServer) -> Iterator[Any]:
    """A cursor of ODBC."""
    pyodbc = pytest.importorskip("pyodbc", exc_type=ImportError)
    driver = odbc_driver()
    if driver is None:
        pytest.skip("psqlODBC is not installed")
    terms = f"Driver={driver};Server=127.0.0.1;Port={sql.port};Uid=tester;Database=any;"
    with closing(pyodbc.connect(terms + "SSLmode=disable", autocommit=True)) as connection:
        yield connection.cursor()


def test_odbc_reads_and_writes(odbc: Any) -> None:
    rows = odbc.execute("SELECT id, symbol, price FROM orders WHERE id = ?", 5).fetchall()
    assert [tuple(row) for row in rows] == [(5, "MSFT", 7.5)]
    odbc.executemany("INSERT INTO prices (symbol, bid) VALUES (?, ?)", [("Y", 1.5), ("Z", 2.5)])
    assert odbc.execute("UPDATE prices SET bid = bid + 1 WHERE symbol = ?", "Y").rowcount == 1
    rows = odbc.execute("DELETE FROM prices WHERE bid = 2.5 RETURNING symbol").fetchall()
    assert sorted(tuple(row) for row in rows) == [("Y",), ("Z",)]


def test_odbc_lists_the_catalogue(odbc: Any) -> None:
    """SQLTables, SQLColumns, SQLPrimaryKeys, SQLStatistics, SQLForeignKeys, SQLProcedures."""
    tables = {(row.table_name, row.table_type) for row in odbc.tables(schema="amps").fetchall()}
    assert tables == {("orders", "TABLE"), ("prices", "TABLE"), ("positions", "VIEW")}
    columns = {row.column_name: row.type_name for row in odbc.columns(table="orders").fetchall()}
    assert columns.items() >= {"id": "int8", "symbol": "text", "price": "float8"}.items()
    assert [row.column_name for row in odbc.primaryKeys(table="orders").fetchall()] == ["id"]
    indexes = [row for row in odbc.statistics("orders").fetchall() if row.index_name]
    assert [(row.index_name, row.column_name) for row in indexes] == [("orders_pkey", "id")]
    assert odbc.foreignKeys(table="orders").fetchall() == []
    assert odbc.foreignKeys(foreignTable="orders").fetchall() == []
    assert odbc.procedures().fetchall()
    assert odbc.getTypeInfo().fetchall()


def test_pandas_reads_queries_at_once_and_in_parts(sql: SqlServer) -> None:
    pandas = pytest.importorskip("pandas")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: sql.connect(autocommit=False)
    )
    query = sqlalchemy.text("SELECT id, symbol, price FROM orders WHERE qty >= :qty ORDER BY id")
    frame = pandas.read_sql(query, engine, params={"qty": 100}, index_col="id")
    assert list(frame.index) == list(range(10, 50))
    assert str(frame.dtypes["price"]) == "float64"
    streaming = engine.execution_options(stream_results=True)
    parts = list(pandas.read_sql(query, streaming, params={"qty": 0}, chunksize=20))
    assert [len(part) for part in parts] == [20, 20, 10]
    engine.dispose()


@pytest.mark.parametrize("form", ["text", "csv", "binary"])
def test_copy_out_has_all_rows(sql: SqlServer, form: str) -> None:
    query = "SELECT id, symbol || E'\\t\"', NULLIF(live, false) FROM orders ORDER BY id"
    expected = [
        (order["id"], f'{order["symbol"]}\t"', True if order["live"] else None) for order in ORDERS
    ]
    with sql.connect() as connection, connection.cursor() as cursor:
        copy_text = f"COPY ({query}) TO STDOUT (FORMAT {form})"
        with cursor.copy(copy_text) as copy:
            if form == "csv":
                lines = io.StringIO(b"".join(map(bytes, copy)).decode())
                found = [
                    (int(number), text, True if flag else None)
                    for number, text, flag in csv.reader(lines)
                ]
            else:
                copy.set_types(["int8", "text", "bool"])
                found = list(copy.rows())
    assert found == expected
