"""A catalog of Spark over the SQL of a server, by the JDBC driver of PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.sql.support import ORDERS, SqlServer, sql_server

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
