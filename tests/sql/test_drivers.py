"""psycopg and asyncpg against a server process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.sql.support import ORDERS, PRICES, SqlServer, sql_server


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish("orders", *ORDERS)
        server.publish("prices", *PRICES)
        yield server


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_queries_with_parameters(sql: SqlServer, binary: bool) -> None:
    with sql.connect() as connection:
        cursor = connection.cursor(binary=binary)
        rows = cursor.execute(
            "SELECT id, symbol, price, live FROM orders WHERE qty > %s AND symbol = %s ORDER BY id",
            (460, "IBM"),
        ).fetchall()
        assert rows == [(48, "IBM", 72.0, True)]
        assert cursor.description is not None
        assert [column.name for column in cursor.description] == ["id", "symbol", "price", "live"]


def test_pandas_reads_a_table_by_reflection(sql: SqlServer) -> None:
    pandas = pytest.importorskip("pandas")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=sql.connect)
    frame = pandas.read_sql_table("orders", engine, schema="amps")
    assert len(frame) == 50
    assert {"id", "symbol", "price"} <= set(frame.columns)
    engine.dispose()


def test_psycopg_prepares_statements_that_are_repeated(sql: SqlServer) -> None:
    with sql.connect() as connection:
        for number in range(10):
            row = connection.execute(
                "SELECT id FROM orders WHERE id = %s", (number,), prepare=True
            ).fetchone()
            assert row == (number,)


def test_psycopg_transactions_and_errors(sql: SqlServer) -> None:
    with sql.connect(autocommit=False) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (50,)
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute("SELECT none FROM orders")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="in a transaction block"):
            connection.execute("DELETE FROM orders")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_of_the_protocol_fails_the_transaction(sql: SqlServer) -> None:
    with sql.connect() as connection:
        connection.execute("BEGIN")
        assert connection.pgconn.exec_prepared(b"none", []).error_message
        assert connection.info.transaction_status.name == "INERROR"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_psycopg_copy(sql: SqlServer) -> None:
    with sql.connect() as connection:
        query = "COPY (SELECT id, symbol FROM orders WHERE id < 3 ORDER BY id) TO STDOUT"
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            assert list(copy.rows()) == [("0", "IBM"), ("1", "MSFT"), ("2", "IBM")]
        with connection.cursor() as cursor, cursor.copy(f"{query} (FORMAT binary)") as copy:
            copy.set_types(["int8", "text"])
            assert list(copy.rows()) == [(0, "IBM"), (1, "MSFT"), (2, "IBM")]


def test_psycopg_dict_rows_and_nulls(sql: SqlServer) -> None:
    with sql.connect(row_factory=dict_row) as connection:
        row = connection.execute(
            "SELECT id, _bookmark, _timestamp FROM orders WHERE id = 1"
        ).fetchone()
        assert row is not None
        assert row["id"] == 1
        assert row["_bookmark"] is None
        assert row["_timestamp"].tzinfo is not None


def test_psycopg_pipeline(sql: SqlServer) -> None:
    with sql.connect() as connection, connection.pipeline():
        cursors = [connection.execute("SELECT %s::int + 1", (number,)) for number in range(20)]
        assert [cursor.fetchone() for cursor in cursors] == [(n + 1,) for n in range(20)]


def test_psycopg_server_side_cursor(sql: SqlServer) -> None:
    with sql.connect(autocommit=False) as connection, connection.cursor("c") as cursor:
        cursor.execute("SELECT id FROM orders ORDER BY id")
        assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
        assert cursor.fetchone() == (3,)
        assert len(cursor.fetchall()) == 46


def test_asyncpg(sql: SqlServer) -> None:
    async def run() -> None:
        connection: Any = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="tester", database="any", timeout=30
        )
        rows = await connection.fetch(
            "SELECT id, symbol, price, live, _timestamp FROM orders WHERE qty >= $1 ORDER BY id",
            480,
        )
        assert [tuple(row)[:4] for row in rows] == [
            (48, "IBM", 72.0, True),
            (49, "MSFT", 73.5, False),
        ]
        assert await connection.fetchval("SELECT count(*) FROM orders") == 50
        async with connection.transaction():
            found = [
                row["id"] async for row in connection.cursor("SELECT id FROM orders ORDER BY id")
            ]
        assert found == list(range(50))
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("SELECT 1 FROM nothing")
        statement = await connection.prepare("SELECT symbol FROM orders WHERE id = $1::bigint")
        assert await statement.fetchval(3) == "MSFT"
        await connection.close()

    asyncio.run(run())


def test_asyncpg_prepares_again_after_a_column_was_widened(sql: SqlServer) -> None:
    query = "SELECT bid FROM prices WHERE symbol = 'ASML'"

    async def run() -> None:
        connection: Any = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="tester", database="any", timeout=30
        )
        sql.publish("prices", {"symbol": "ASML", "bid": 5})
        statement = await connection.prepare(query)
        assert await statement.fetchval() == 5
        assert await connection.fetchval(query) == 5
        sql.publish("prices", {"symbol": "ASML", "bid": "many"})
        assert await connection.fetchval(query) == "many"
        with pytest.raises(asyncpg.InvalidCachedStatementError):
            await statement.fetchval()
        await connection.close()

    asyncio.run(run())


def test_a_binary_copy_of_a_described_query_has_the_columns_described(sql: SqlServer) -> None:
    """ADBC describes a query, and decodes a COPY of it accordingly."""
    query = "SELECT qty FROM orders WHERE id = 7"
    copy = f"COPY ({query}) TO STDOUT (FORMAT binary)"
    with sql.connect() as connection, connection.cursor() as cursor:
        connection.pgconn.prepare(b"", query.encode())
        assert connection.pgconn.describe_prepared(b"").ftype(0) == 20
        sql.publish("orders", ORDERS[7] | {"qty": 7.5})
        with (
            pytest.raises(psycopg.errors.FeatureNotSupported, match="must not change result type"),
            cursor.copy(copy),
        ):
            pass
        connection.pgconn.prepare(b"", query.encode())
        assert connection.pgconn.describe_prepared(b"").ftype(0) == 701
        with cursor.copy(copy) as rows:
            rows.set_types(["float8"])
            assert list(rows.rows()) == [(7.5,)]
