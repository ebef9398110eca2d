"""Topics in SQL: views, tables, and a catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pipeline
from pipeline.errors import PipelineError
from tests.pipeline.topics import publish, uri
from tests.support.server import RunningServer

CONFIGURATION = """<AMPSConfig>
  <Name>listed</Name>
  <Transports><Transport>
    <Name>any</Name><Type>tcp</Type><InetAddr>127.0.0.1:9007</InetAddr><Protocol>amps</Protocol>
  </Transport></Transports>
  <SOW>
    <Topic>
      <Name>sow-listed.one</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>sow-listed-empty</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>sow-listed-mixed</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>nv</Name><MessageType>nvfix</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>any</Name><Pattern>^any-</Pattern><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
  </SOW>
</AMPSConfig>
"""


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[list[str]]:
    """Names of tables and views that disappear behind the test."""
    names: list[str] = []
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS `{name}`")
        spark.catalog.dropTempView(f"`{name}`")


def test_a_table_can_be_read_with_options(
    spark: SparkSession, server: RunningServer, tables: list[str]
) -> None:
    """Spark hands none of those that it was made with to a source; what works instead, it says."""
    publish(server, "sow-table", [{"id": 1}, {"id": 2}])
    options = f"server '{uri(server)}', topic 'sow-table'"
    tables += ["with_columns", "without_columns"]
    spark.sql(f"CREATE TABLE with_columns (id INT) USING amps OPTIONS ({options})")
    spark.sql(f"CREATE TABLE without_columns USING amps OPTIONS ({options}, sample '10')")
    described = spark.sql("DESCRIBE without_columns").collect()
    assert (described[0].col_name, described[0].data_type) == ("id", "bigint")
    for name in tables:
        with pytest.raises(PySparkException, match="in SQL, use CREATE TEMPORARY VIEW"):
            spark.sql(f"SELECT * FROM {name}").collect()
        given = options.replace(" '", " = '")
        rows = spark.sql(f"SELECT sum(id) AS sum FROM {name} WITH ({given})").collect()
        assert rows[0].sum == 3


def test_a_catalogue_has_the_topics_of_a_configuration(
    spark: SparkSession, server: RunningServer, tables: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.xml"
    config.write_text(CONFIGURATION)
    publish(server, "sow-listed.one", [{"id": 1, "price": 0.5}, {"id": 2, "who": {"name": "x"}}])
    publish(server, "sow-listed-mixed", [{"id": 1}, {"id": "two"}])
    plain = uri(server).removesuffix("/json")
    tables += pipeline.catalogue(spark, plain, config, client_name="listing")
    assert tables == ["sow-listed.one", "sow-listed-empty", "sow-listed-mixed", "nv"]
    listed = {row.tableName for row in spark.sql("SHOW TABLES").collect()}
    assert set(tables) <= listed
    described = spark.sql("DESCRIBE `sow-listed.one`").collect()
    assert [(row.col_name, row.data_type) for row in described] == [
        ("id", "bigint"),
        ("price", "double"),
        ("who", "struct<name:string>"),
    ]
    publish(server, "sow-listed.one", [{"id": 3, "price": 2}])
    assert spark.sql("SELECT sum(price) AS sum FROM `sow-listed.one`").collect()[0].sum == 2.5
    assert {row.body for row in spark.sql("SELECT body FROM `sow-listed-mixed`").collect()} == {
        '{"id": 1}',
        '{"id": "two"}',
    }
    assert spark.table("`sow-listed-empty`").columns[0] == "body"


def test_a_catalogue_is_of_a_configuration_that_can_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=r"missing.xml: invalid configuration:"):
        pipeline.catalogue(spark, "tcp://127.0.0.1:9/amps", tmp_path / "missing.xml")
