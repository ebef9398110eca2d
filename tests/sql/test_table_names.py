"""The names of tables for clients of SQL, and of Spark's views of the same topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from config_schema.table_names import TableName, table_names
from pipeline.configuration import read_configuration
from pipeline.temp_views import named_topics
from tests.sql.support import SqlServer, sql_server

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>orders</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>Prices/EU</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>work</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <View><Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/id</Field></Grouping></View>
  <Queue><Name>work</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    with sql_server(tmp_path_factory.mktemp("sql"), topics=TOPICS) as server:
        yield server


def test_views_of_spark_have_the_names_of_tables(sql: SqlServer) -> None:
    with sql.connect() as connection:
        listed = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_schema IN ('amps', 'json', 'nvfix')"
        ).fetchall()
    tables = {name if schema == "amps" else f"{schema}.{name}" for schema, name in listed}
    spec = read_configuration(str(sql.server.log_file.parent / "config.xml"))
    views = set(named_topics(spec))
    assert views == {"json.orders", "nvfix.orders", "Prices/EU", "nvfix.work", "totals"}
    assert tables == views | {"json.work"}  # the queue


def test_a_name_of_several_message_types_is_qualified() -> None:
    named = table_names([("a", "json"), ("b", "json"), ("a", "fix")])
    assert named == [TableName("json", "a"), TableName("", "b"), TableName("fix", "a")]
    assert list(map(str, named)) == ["json.a", "b", "fix.a"]
