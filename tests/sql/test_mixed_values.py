"""Fields whose values have several types: the same rows with and without filters of the scan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from tests.sql.support import SqlServer, sql_server

MIXED = ["a", "5", "05", 5, 5.0, True, "true", [5, 1], ["a"], {"b": 1}, "", "[5,1]"]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish(
            "orders", *({"id": number, "m": value} for number, value in enumerate(MIXED))
        )
        server.publish("prices", {"symbol": "Y", "": 7, "bid": 1})
        yield server


@pytest.mark.parametrize(
    "condition",
    [
        *(f"m = '{text}'" for text in ("a", "5", "05", "5.0", "true", "1", "[5,1]", "")),
        *("m IN ('5', 'a')", "m IN ('05', '')", "m IN ('true', 'a')"),
        *("m <> 'a'", "m NOT IN ('a', '5')", "m LIKE 't%'", "m LIKE '%5%'", "m NOT LIKE 'a%'"),
        *("m BETWEEN 'a' AND 'é'", "id BETWEEN 2 AND 4.5"),
    ],
)
def test_a_condition_selects_the_rows_of_the_column(sql: SqlServer, condition: str) -> None:
    """As DuckDB selects them from the rows of a query that filters nothing."""
    with sql.connect() as connection:
        whole = (
            f"WITH t AS MATERIALIZED (SELECT id, m FROM orders) SELECT id FROM t WHERE {condition}"
        )
        expected = sorted(connection.execute(whole).fetchall())
        for query in (
            f"SELECT id FROM orders WHERE {condition}",
            f"SELECT id FROM orders WHERE {condition} ORDER BY id",
            f"SELECT id FROM orders WHERE {condition} LIMIT 100 OFFSET 0",
        ):
            assert sorted(connection.execute(query).fetchall()) == expected


def test_a_field_without_a_name_is_a_column(sql: SqlServer) -> None:
    with sql.connect() as connection:
        for query in (
            "SELECT * FROM prices WHERE symbol = 'Y'",
            "WITH t AS (SELECT * FROM prices) SELECT * FROM t WHERE symbol = 'Y' ORDER BY symbol",
        ):
            assert connection.execute(query).fetchall()[0][:2] == ("Y", 7)
        assert connection.execute("SELECT _ FROM prices WHERE _ = 7").fetchall() == [(7,)]


def test_a_prepared_statement_ends_when_its_columns_change(sql: SqlServer) -> None:
    """Its client decodes rows by the types that it was described."""
    sql.publish("prices", {"symbol": "X", "bid": 1})

    async def fetch_after_change() -> None:
        connection = await asyncpg.connect("postgresql://ann@127.0.0.1/amps", port=sql.port)
        try:
            for tail in ("", " ORDER BY 1"):
                statement = await connection.prepare(
                    "SELECT symbol, bid FROM prices WHERE symbol = $1" + tail
                )
                assert await statement.fetch("X") == [("X", 1)]
            sql.publish("prices", {"symbol": "X", "bid": 1.5})
            with pytest.raises(asyncpg.InvalidCachedStatementError):
                await statement.fetch("X")
            assert await connection.fetch("SELECT bid FROM prices WHERE symbol = 'X'") == [(1.5,)]
        finally:
            await connection.close()

    asyncio.run(fetch_after_change())
