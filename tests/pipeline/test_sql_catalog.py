"""A catalog of Spark over the SQL of a server, by the JDBC driver of PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.random_queries import Expr, Query, queries, rows_of
from tests.pipeline.test_one_meaning import messages, values
from tests.sql.support import ORDERS, SqlServer, sql_server
from tests.support.chances import examples

DRIVERS = sorted(Path.home().glob(".m2/repository/org/postgresql/postgresql/*/postgresql-*.jar"))

pytestmark = pytest.mark.skipif(not DRIVERS, reason="Maven has not fetched the driver")


HISTORY = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <FileName>orders.sow</FileName><History><Window>1h</Window><Granularity>0s</Granularity></History>
</Topic></SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture
def driver(spark: SparkSession) -> str:
    """The driver, known to the session."""
    spark.sql(f"ADD JAR '{DRIVERS[-1]}'")
    return "org.postgresql.Driver"


def plan(frame: DataFrame) -> str:
    """The plan that EXPLAIN shows."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_the_past_by_a_query_of_the_server(
    spark: SparkSession, tmp_path: Path, driver: str
) -> None:
    """Spark has no AS OF for its catalog; what a view of the query leaves, the server filters."""
    with sql_server(tmp_path, topics=HISTORY) as server:
        server.publish("orders", *ORDERS)
        with server.connect() as connection:
            found = connection.execute("SELECT _bookmark FROM orders WHERE id = 49")
            ((bookmark,),) = found.fetchall()
        server.publish("orders", *[order | {"qty": 0} for order in ORDERS])
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/amps?user=tester&sslmode=disable"
        spark.sql(f"""
            CREATE OR REPLACE TEMPORARY VIEW orders_then USING jdbc OPTIONS (
                url '{url}', driver '{driver}',
                query "SELECT id, qty FROM orders AS OF BOOKMARK '{bookmark}'"
            )
        """)
        large = spark.sql("SELECT count(*) FROM orders_then WHERE qty > 400")
        assert "GreaterThan(qty,400)" in plan(large)
        assert [tuple(row) for row in large.collect()] == [(9,)]


CATALOG: Final = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
PUSHED: Final = ("Predicate", "Aggregate", "Limit", "Offset", "TableSample", "Join")
"""What Spark may hand to the server."""


def set_catalog(
    spark: SparkSession, name: str, server: SqlServer, driver: str, *, pushes: bool = True
) -> None:
    """Make a catalog of a server known to the session."""
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/amps?user=tester&sslmode=disable"
    catalog = f"spark.sql.catalog.{name}"
    spark.conf.set(catalog, CATALOG)
    spark.conf.set(f"{catalog}.url", f"{url}&options=-c%20amperage.writes=immediate")
    spark.conf.set(f"{catalog}.driver", driver)
    for work in PUSHED:
        spark.conf.set(f"{catalog}.pushDown{work}", str(pushes).lower())


KINDS: Final = {"id": "long", "l": "long", "d": "double", "s": "text", "m": "text", "b": "truth"}
FULL: Final = {"id": -1, "l": 1, "d": 0.5, "s": "a", "m": "a", "b": True}
"""A row with a value in each column, from which the server learns the columns."""
COLUMNS: Final = [Expr(name, kind, itemgetter(name)) for name, kind in KINDS.items()]


def constants() -> Mapping[str, st.SearchStrategy[Any]]:
    """Constants that Spark can write in SQL: of NaN and infinity it makes names of columns."""
    of_json = values("json")
    return {
        "long": of_json["l"],
        "double": of_json["d"].filter(math.isfinite),
        "text": of_json["s"],
    }


def in_sql(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a row of the server's SQL: times are texts, and the empty text is NULL."""
    plain = {name: row.get(name) for name in KINDS}
    if isinstance(plain["m"], datetime):
        plain["m"] = plain["m"].isoformat()
    return plain


@pytest.mark.long
def test_the_server_finds_what_spark_finds(
    spark: SparkSession, tmp_path: Path, driver: str
) -> None:
    """Of random queries, whether Spark may hand over what it can, or reads whole tables."""
    many = examples(20, usual=4)
    catalogs = ("pushed", "whole")

    @settings(max_examples=examples(40, usual=1), phases=[Phase.generate], deadline=None)
    @given(
        messages("json", most=40),
        st.lists(queries(COLUMNS, constants()), min_size=many, max_size=many),
    )
    def check(rows: list[dict[str, Any]], some: list[Query]) -> None:
        with server.connect() as connection:
            connection.execute("DELETE FROM orders")
        published = [FULL, *map(in_sql, rows)]
        server.publish("orders", *published)
        meant = [
            {name: None if value == "" else value for name, value in row.items()}
            for row in published
        ]
        for query in some:
            for name in catalogs:
                text = query.sql(f"{name}.amps.orders", "id")
                try:
                    query.check(rows_of(spark.sql(text)), meant)
                except (AssertionError, ValueError) as difference:
                    raise AssertionError(text) from difference

    with sql_server(tmp_path) as server:
        for name in catalogs:
            set_catalog(spark, name, server, driver, pushes=name == "pushed")
        check()


def test_spark_hands_limits_and_aggregates_to_the_server(
    spark: SparkSession, tmp_path: Path, driver: str
) -> None:
    """And its plan shows which."""
    with sql_server(tmp_path) as server:
        server.publish("orders", *ORDERS)
        set_catalog(spark, "amps_sql", server, driver)
        tables = spark.sql("SHOW TABLES IN amps_sql.amps").collect()
        assert [row.tableName for row in tables] == ["orders", "prices"]
        for statement, pushed, rows in (
            (
                "SELECT symbol, count(*), sum(qty) FROM {} GROUP BY symbol ORDER BY symbol",
                "PushedAggregates: [COUNT(*), SUM(qty)]",
                [("IBM", 25, 6000), ("MSFT", 25, 6250)],
            ),
            (
                "SELECT id FROM {} WHERE qty < 400 ORDER BY price DESC LIMIT 2",
                "PushedTopN: ORDER BY [price DESC NULLS LAST] LIMIT 2",
                [(39,), (38,)],
            ),
        ):
            frame = spark.sql(statement.format("amps_sql.amps.orders"))
            assert pushed in plan(frame)
            assert [tuple(row) for row in frame.collect()] == rows
        spark.sql("INSERT INTO amps_sql.amps.orders (id, symbol, qty) VALUES (1001, 'ORCL', 7)")
        written = spark.sql("SELECT symbol, qty, price FROM amps_sql.amps.orders WHERE id = 1001")
        assert [tuple(row) for row in written.collect()] == [("ORCL", 7, None)]


def test_rows_that_the_server_leaves_out_raise_no_error(
    spark: SparkSession, tmp_path: Path, driver: str
) -> None:
    """Spark alone computes the expressions of all rows before it has the first ones of an order."""
    with sql_server(tmp_path) as server:
        server.publish("orders", {"id": 1, "qty": 5, "price": 0.5}, {"id": 2, "qty": 2**63 - 1})
        for name in ("early", "late"):  # a session keeps catalogs by their names
            set_catalog(spark, name, server, driver, pushes=name == "early")
        first = "SELECT qty + 1 AS more FROM {}.amps.orders ORDER BY id LIMIT 1"
        assert rows_of(spark.sql(first.format("early"))) == [(6,)]
        with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
            spark.sql(first.format("late")).collect()
        # Spark writes this constant as NaN, which is the name of a column.
        not_a_number = "SELECT id FROM {}.amps.orders WHERE price = double('NaN')"
        assert rows_of(spark.sql(not_a_number.format("late"))) == []
        with pytest.raises(Py4JJavaError):
            spark.sql(not_a_number.format("early")).collect()
