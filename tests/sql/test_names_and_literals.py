"""Names of tables in FROM, NATURAL JOIN, and quoted literals beside numbers, as in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.sql.support import ORDERS, PRICES, SqlServer, sql_server


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql")) as server:
        server.publish("orders", *ORDERS)
        server.publish("prices", *PRICES)
        yield server


@pytest.mark.parametrize(
    "tables",
    [
        "orders o, prices o",
        "orders, orders",
        "orders, amps.orders",
        "orders o JOIN orders o ON true",
        "orders JOIN (SELECT 1) orders ON true",
        "(orders a JOIN prices b USING (symbol)) CROSS JOIN prices b",
        "orders, generate_series(1, 2) orders",
    ],
)
def test_a_name_of_from_is_there_once(sql: SqlServer, tables: str) -> None:
    with (
        sql.connect() as connection,
        pytest.raises(psycopg.errors.DuplicateAlias, match="specified more than once"),
    ):
        connection.execute(f"SELECT 1 FROM {tables}")


@pytest.mark.parametrize(
    "tables",
    [
        "orders, pg_catalog.pg_class, information_schema.tables",
        "orders a, orders b",
        "orders a, (SELECT a.id FROM orders a) b",
        "(orders a JOIN prices b USING (symbol)) AS c, prices b",
    ],
)
def test_a_name_may_be_there_in_another_from(sql: SqlServer, tables: str) -> None:
    with sql.connect() as connection:
        connection.execute(f"SELECT 1 FROM {tables} LIMIT 1")


@pytest.mark.parametrize(
    ("tables", "count"),
    [
        ("orders NATURAL JOIN prices", 50),
        ("prices NATURAL LEFT JOIN orders", 50),
        ("prices NATURAL JOIN positions", 2),
        ("orders NATURAL JOIN positions", 0),  # they have qty in common, too
        ("(orders NATURAL JOIN prices) NATURAL JOIN (SELECT symbol FROM positions) p", 50),
        ("orders NATURAL JOIN (SELECT * FROM prices) p", 50),
        ("(SELECT id FROM orders) o NATURAL JOIN prices", 100),
        ("(SELECT id FROM orders) o NATURAL LEFT JOIN prices", 100),
        ("prices a JOIN prices b USING (_key)", 2),
    ],
)
def test_natural_joins_leave_out_metadata(sql: SqlServer, tables: str, count: int) -> None:
    with sql.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM {tables}").fetchone() == (count,)
        with_common = f"WITH prices AS (SELECT * FROM prices) SELECT count(*) FROM {tables}"
        assert connection.execute(with_common).fetchone() == (count,)


LITERALS = [
    ("id = '15'", [15]),
    ("'15' = id", [15]),
    ("id = ' +15 '", [15]),
    ("id IN ('3', '04')", [3, 4]),
    ("id BETWEEN '2' AND '3'", [2, 3]),
    ("id < '-0' OR id > '48'", [49]),
    ("price = '1.5'", [1]),
    ("price > '7.2e1'", [49]),
    ("o.id IS NOT DISTINCT FROM '7'", [7]),
]
WRONG = [
    ("id = '1.5'", "22P02", 'invalid input syntax for type bigint: "1.5"'),
    ("id > '1.5'", "22P02", 'invalid input syntax for type bigint: "1.5"'),
    ("id IN ('1', '')", "22P02", 'invalid input syntax for type bigint: ""'),
    ("o.id = 'x'", "22P02", 'invalid input syntax for type bigint: "x"'),
    ("id = '9223372036854775808'", "22003", "out of range for type bigint"),
    ("price = '1.5.2'", "22P02", 'invalid input syntax for type double precision: "1.5.2"'),
]


@pytest.mark.parametrize("end", ["", " ORDER BY id"])
@pytest.mark.parametrize(("condition", "ids"), LITERALS)
def test_quoted_literals_beside_numbers(
    sql: SqlServer, condition: str, ids: list[int], end: str
) -> None:
    query = f"SELECT id FROM orders o WHERE {condition}{end}"
    with sql.connect(cursor_factory=psycopg.ClientCursor) as connection:
        assert sorted(connection.execute(query).fetchall()) == [(id_,) for id_ in ids]
        assert sorted(psycopg.Cursor(connection).execute(query, prepare=True).fetchall()) == [
            (id_,) for id_ in ids
        ]


@pytest.mark.parametrize("end", ["", " ORDER BY id"])
@pytest.mark.parametrize(("condition", "sqlstate", "message"), WRONG)
def test_quoted_literals_that_are_no_numbers(
    sql: SqlServer, condition: str, sqlstate: str, message: str, end: str
) -> None:
    query = f"SELECT id FROM orders o WHERE {condition}{end}"
    with sql.connect() as connection:
        for prepare in (False, True):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(query, prepare=prepare)
            assert caught.value.sqlstate == sqlstate
            assert message in str(caught.value)


def test_a_parameter_beside_a_number_has_its_type(sql: SqlServer) -> None:
    async def run() -> None:
        connection: Any = await asyncpg.connect(
            host="127.0.0.1", port=sql.port, user="tester", database="any", timeout=30
        )
        query = "SELECT id FROM orders WHERE id = $1"
        assert await connection.fetchval(query, 15) == 15
        with pytest.raises(asyncpg.DataError):
            await connection.fetchval(query, "15")
        await connection.close()

    asyncio.run(run())
    with sql.connect() as connection:
        query = "SELECT id FROM orders WHERE id = %s"
        assert connection.execute(query, ("15",)).fetchall() == [(15,)]
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute(query, ("1.5",))
