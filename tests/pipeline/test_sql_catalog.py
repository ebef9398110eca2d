"""A catalog of Spark over the SQL of a server, by the JDBC driver of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.support import ORDERS, sql_server

DRIVERS = sorted(Path.home().glob(".m2/repository/org/postgresql/postgresql/*/postgresql-*.jar"))

pytestmark = pytest.mark.skipif(not DRIVERS, reason="Maven has not fetched the driver")


def test_spark_hands_limits_and_aggregates_to_the_server(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And its plan shows which."""
    with sql_server(tmp_path) as server:
        server.publish("orders", *ORDERS)
        spark.sql(f"ADD JAR '{DRIVERS[-1]}'")
        catalog = "spark.sql.catalog.amps_sql"
        jdbc = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/amps?user=tester&sslmode=disable&options=-c%20amperage.writes=immediate"
        spark.conf.set(catalog, jdbc)
        spark.conf.set(f"{catalog}.url", url)
        spark.conf.set(f"{catalog}.driver", "org.postgresql.Driver")
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
            assert pushed in frame._jdf.queryExecution().executedPlan().toString()
            assert [tuple(row) for row in frame.collect()] == rows
        spark.sql("INSERT INTO amps_sql.amps.orders (id, symbol, qty) VALUES (1001, 'ORCL', 7)")
        written = spark.sql("SELECT symbol, qty, price FROM amps_sql.amps.orders WHERE id = 1001")
        assert [tuple(row) for row in written.collect()] == [("ORCL", 7, None)]
