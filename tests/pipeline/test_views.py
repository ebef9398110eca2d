"""Views in Spark against the same views in a running server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from config_schema.spec import InstanceSpec, TopicRef
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.views import view_records
from pipeline.views.check import check_views, sow_records
from tests.support.server import RunningServer, running_server

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>customers</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>slow</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval><Filter>/qty &gt; 3</Filter>
    <Enrichment><Field>/qty * 2 AS /double</Field></Enrichment>
  </ConflatedTopic>
  <View>
    <Name>every-aggregate</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection>
      <Field>/side</Field>
      <Field>SUM(/px) AS /sum</Field>
      <Field>AVG(/px) AS /avg</Field>
      <Field>MIN(/px) AS /min</Field>
      <Field>MAX(/sym) AS /max</Field>
      <Field>COUNT(/px) AS /count</Field>
      <Field>COUNT_DISTINCT(/sym) AS /distinct</Field>
      <Field>STDDEV_POP(/qty) AS /pop</Field>
      <Field>STDDEV_SAMP(/qty) AS /samp</Field>
      <Field>GROUP_CONCAT(/sym) AS /list</Field>
      <Field>UNIQUE(/sym) AS /unique</Field>
      <Field>IF(SUM(/qty) &gt; 20, 'many', 'few') AS /much</Field>
    </Projection>
    <Grouping><Field>/side</Field></Grouping>
  </View>
  <View>
    <Name>filtered</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Filter>/qty &gt; 5 AND SOW_KEY() IS NOT NULL</Filter>
    <Projection><Field>/sym</Field><Field>SUM(/qty * /px) / SUM(/qty) AS /vwap</Field></Projection>
    <Grouping><Field>/sym</Field></Grouping>
  </View>
  <View>
    <Name>over-view</Name><MessageType>json</MessageType>
    <UnderlyingTopic>every-aggregate</UnderlyingTopic>
    <Projection><Field>/much</Field><Field>SUM(/count) AS /n</Field></Projection>
    <Grouping><Field>/much</Field></Grouping>
  </View>
  <View>
    <Name>over-slow</Name><MessageType>json</MessageType>
    <UnderlyingTopic>slow</UnderlyingTopic>
    <Projection><Field>/side</Field><Field>SUM(/double) AS /double</Field></Projection>
    <Grouping><Field>/side</Field></Grouping>
  </View>
  <View>
    <Name>joined</Name><MessageType>json</MessageType>
    <UnderlyingTopic>
      <Join>[json].[orders].[/cust] = [nvfix].[customers].[/id]</Join>
    </UnderlyingTopic>
    <Projection>
      <Field>[nvfix].[customers]./name AS /name</Field>
      <Field>COUNT([json].[orders]./id) AS /orders</Field>
      <Field>SUM([json].[orders]./qty) AS /qty</Field>
    </Projection>
    <Grouping><Field>[nvfix].[customers]./name</Field></Grouping>
  </View>
</SOW>
"""
VIEWS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A server with records, after random publishes and deletions."""
    directory = tmp_path_factory.mktemp("views")
    with running_server(directory, elements=TOPICS) as running:
        change_at_random(running, random.Random(9))
        yield running, directory / "config.xml"


def change_at_random(server: RunningServer, chance: random.Random) -> None:
    """Publish, update and delete records, with values of all types."""
    with server.log_on("publisher") as peer:
        for _ in range(1500):
            order = {
                "id": chance.randrange(400),
                "side": chance.choice(["buy", "sell", None, 1]),
                "qty": chance.randrange(12),
                "px": chance.choice([1.1, 2.2, -1e300, 1e300, "3", "x", None, 7]),
                "sym": chance.choice(["A", "B", "9", 10, "", None]),
                "cust": chance.choice([1, "2", "none", None]),
            }
            peer.publish("orders", json.dumps(order).encode())
        peer.ask({"c": "sow_delete", "cid": "d", "t": "orders", "f": "/id < 50", "a": "processed"})
        peer.flush()
    with server.log_on("customers", "nvfix") as peer:
        for number, name in ((1, "Ann"), (2, "Bob"), (3, "Cid")):
            peer.publish("customers", b"id=%d\x01name=%s\x01" % (number, name.encode()))
        peer.flush()


def test_all_views_are_equal(spark: SparkSession, server: tuple[RunningServer, Path]) -> None:
    """To the last digit."""
    running, path = server
    verdicts = check_views(spark, read_configuration(str(path)), uri(running))
    assert [verdict.differences for verdict in verdicts] == [[]] * VIEWS
    assert all(verdict.records for verdict in verdicts)


def test_a_difference_is_found(
    spark: SparkSession, server: tuple[RunningServer, Path], tmp_path: Path
) -> None:
    """Here, since the view is defined otherwise than in the server."""
    running, path = server
    changed = tmp_path / "config.xml"
    changed.write_text(path.read_text().replace("SUM(/double) AS", "SUM(/double + 1) AS"))
    verdicts = check_views(spark, read_configuration(str(changed)), uri(running))
    different = {verdict.view.name for verdict in verdicts if verdict.differences}
    assert different == {"over-slow"}


def test_what_is_no_view_is_refused(
    spark: SparkSession, server: tuple[RunningServer, Path]
) -> None:
    """With the views that there are."""
    running, path = server
    spec: InstanceSpec = read_configuration(str(path))
    with pytest.raises(PipelineError, match="every-aggregate"):
        view_records(
            spec,
            TopicRef("orders", "json"),
            lambda ref: sow_records(spark, uri(running), ref),
        )


def uri(server: RunningServer) -> str:
    """How the pipeline calls the server."""
    return f"tcp://127.0.0.1:{server.port}/amps"
