"""Views in Spark against the same views in a running server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from config_schema.spec import InstanceSpec, TopicRef
from pipeline.cli import main
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.views import view_records
from pipeline.views.sources import server_records
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

TOPICS = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>copies</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>jobs</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<SOW>
  <Topic>
    <Name>copies</Name><MessageType>json</MessageType><Key>/sym</Key>
    <Durability>transient</Durability>
  </Topic>
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
  <Queue><Name>jobs</Name><MessageType>json</MessageType></Queue>
  <View>
    <Name>over-queue</Name><MessageType>json</MessageType>
    <UnderlyingTopic>jobs</UnderlyingTopic>
    <Projection><Field>/kind</Field><Field>COUNT(/kind) AS /waiting</Field></Projection>
    <Grouping><Field>/kind</Field></Grouping>
  </View>
</SOW>
"""
VIEWS = 6


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
        for number in range(30):
            peer.publish("jobs", b'{"kind":%d}' % (number % 3))
        peer.flush()
    with server.log_on("customers", "nvfix") as peer:
        for number, name in ((1, "Ann"), (2, "Bob"), (3, "Cid")):
            peer.publish("customers", b"id=%d\x01name=%s\x01" % (number, name.encode()))
        peer.flush()


@pytest.mark.usefixtures("spark")
def test_a_check_finds_what_differs(
    server: tuple[RunningServer, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Views are equal to the last digit, but for one that is defined otherwise in the server."""
    running, path = server
    changed = tmp_path / "config.xml"
    changed.write_text(path.read_text().replace("SUM(/double) AS", "SUM(/double + 1) AS"))
    assert main(["--quiet", "check", str(changed), "--server", f"{uri(running)}/nvfix"]) == 1
    out, err = capsys.readouterr()
    assert err == f"amps-pipeline: 1 of {VIEWS} views differ\n"
    verdicts = dict(line.split(": ") for line in out.splitlines() if line.startswith("["))
    assert len(verdicts) == VIEWS
    assert not any(verdict.startswith("0 records") for verdict in verdicts.values())
    different = [view for view, verdict in verdicts.items() if ", no diff" not in verdict]
    assert different == ["[json].[over-slow]"]


@pytest.mark.usefixtures("spark")
def test_a_view_is_computed_from_journals(
    server: tuple[RunningServer, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the server, and as it is there; and published to a topic."""
    running, path = server
    job = ["--quiet", "view", str(path), "filtered"]
    assert main([*job, "--journals", str(path.parent / "journal")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["view", str(path), "joined", "--journals", str(path.parent / "journal")]) == 1
    assert "[nvfix].[customers] is not in the TransactionLog" in capsys.readouterr().err
    assert main(["view", str(path), "over-queue", "--journals", str(path.parent / "journal")]) == 1
    assert "[json].[jobs] is a queue" in capsys.readouterr().err
    target = ["--publish", f"{uri(running)}/json", "--topic", "copies"]
    assert main([*job, "--server", uri(running), *target]) == 0
    with running.log_on("reader") as peer:
        records = query(peer, "filtered").records
        assert sorted(query(peer, "copies").bodies) == sorted(body for _, body in records)
    assert sorted(lines) == sorted(f"{head['k']}\t{body.decode()}" for head, body in records)


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
            lambda ref: server_records(spark, uri(running), ref),
        )


def uri(server: RunningServer) -> str:
    """How the pipeline calls the server."""
    return f"tcp://127.0.0.1:{server.port}/amps"
