"""Queries that are repeated, while records and columns change: plans and columns are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

import psycopg
import pytest

from tests.sql.support import SqlServer, sql_server

TOPIC: Final = """
<Topic>
  <Name>orders_{}</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability>
</Topic>
"""
TOPICS: Final = f"<SOW>{''.join(map(TOPIC.format, range(30)))}</SOW>"
_numbers = count()


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("server"), topics=TOPICS) as server:
        yield server


@pytest.fixture
def orders() -> str:
    """A topic of the test's own."""
    return f"orders_{next(_numbers)}"


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("condition", ["id = %s", "id = %s AND qty >= 0", "%s = id"])
def test_the_record_of_a_key_is_always_the_present_one(
    sql: SqlServer, orders: str, prepare: bool, condition: str
) -> None:
    text = f"SELECT qty, symbol FROM {orders} WHERE {condition}"
    with sql.connect() as connection:
        for turn in range(20):
            sql.publish(orders, {"id": 1, "qty": turn, "symbol": f"s{turn}"})
            found = connection.execute(text, (1,), prepare=prepare).fetchall()
            assert found == [(turn, f"s{turn}")]
            assert connection.execute(text, (2,), prepare=prepare).fetchall() == []


def test_a_pipeline_of_point_queries_is_answered_in_order(sql: SqlServer, orders: str) -> None:
    sql.publish(orders, *({"id": number, "qty": number * 2} for number in range(300)))
    text = f"SELECT id, qty FROM {orders} WHERE id = %s"
    with sql.connect() as connection, sql.connect() as other:
        connection.execute(text, (0,), prepare=True)
        with connection.pipeline():
            cursors = [connection.execute(text, (number,), prepare=True) for number in range(300)]
            assert other.execute(f"SELECT count(*) FROM {orders}").fetchall() == [(300,)]
        assert [cursor.fetchall() for cursor in cursors] == [[(n, n * 2)] for n in range(300)]


def test_an_error_of_a_point_query_ends_the_transaction_only(sql: SqlServer, orders: str) -> None:
    sql.publish(orders, {"id": 1, "qty": 5})
    text = f"SELECT qty FROM {orders} WHERE id = %s"
    with sql.connect() as connection:
        for _ in range(3):
            assert connection.execute(text, (1,)).fetchall() == [(5,)]
        connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute(f"SELECT none FROM {orders}")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute(text, (1,))
        connection.execute("ROLLBACK")
        assert connection.execute(text, (1,)).fetchall() == [(5,)]


def test_a_repeated_query_has_the_columns_of_the_moment(sql: SqlServer, orders: str) -> None:
    """Its plan is made again when a column is widened."""
    text = f"SELECT v FROM {orders} WHERE id < 100 ORDER BY id"
    with sql.connect() as connection:
        sql.publish(orders, {"id": 1, "v": 1})
        for _ in range(3):
            assert connection.execute(text, prepare=False).fetchall() == [(1,)]
        sql.publish(orders, {"id": 2, "v": 0.5})
        for _ in range(3):
            assert connection.execute(text, prepare=False).fetchall() == [(1.0,), (0.5,)]
        sql.publish(orders, {"id": 3, "v": "x"})
        for _ in range(3):
            assert connection.execute(text, prepare=False).fetchall() == [("1",), ("0.5",), ("x",)]


def test_a_query_that_has_failed_is_executed_again(sql: SqlServer, orders: str) -> None:
    text = f"SELECT sum(CAST(symbol AS bigint)) FROM {orders}"
    with sql.connect() as connection:
        for symbol, total in (("5", 5), ("x", None), ("7", 7), ("y", None), ("8", 8)):
            sql.publish(orders, {"id": 1, "symbol": symbol})
            if total is not None:
                assert connection.execute(text).fetchall() == [(total,)]
                continue
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                connection.execute(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT region, sum(qty) FROM orders GROUP BY region ORDER BY region",
        "SELECT count(*) FROM orders WHERE region = 'EU'",
        "SELECT id, region FROM orders WHERE qty >= 3 AND qty < 9 ORDER BY id",
        "SELECT max(a.id) FROM orders a JOIN orders b USING (id) WHERE a.region = 'US'",
        "SELECT id FROM orders WHERE region IN ('EU', 'APAC')",
    ],
)
def test_a_repeated_query_reads_the_records_of_the_moment(
    sql: SqlServer, orders: str, text: str
) -> None:
    regions = ("EU", "US", "APAC", None)
    sql.publish(
        orders,
        *({"id": n, "qty": n % 13, "region": regions[n % 4]} for n in range(600)),
    )
    text = text.replace("orders", orders)
    fresh = text.replace("SELECT", "WITH t AS (SELECT now()) SELECT", 1)
    with sql.connect() as connection:
        for turn in range(12):
            found = connection.execute(text).fetchall()
            assert sorted(found, key=str) == sorted(connection.execute(fresh).fetchall(), key=str)
            sql.publish(
                orders,
                *(
                    {"id": n, "qty": turn, "region": regions[(n + turn) % 3]}
                    for n in range(turn, 600 + turn, 1 + turn * 50)
                ),
            )
