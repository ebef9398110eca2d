"""Views that Spark keeps up, against the same views in the server whose journals it follows."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from config_schema.spec import TopicRef
from pipeline.cli import main
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.views import stream_view
from pipeline.views.streaming.checkpoint import ViewIdentity, lock_checkpoint, store_identity
from pipeline.views.streaming.sources import Journals
from pipeline.views.streaming.targets import ParquetFiles
from tests.pipeline.quick_java import quick_java
from tests.pipeline.streams import until
from tests.pipeline.topics import logged, publish
from tests.support.long_form import ONLY_LONG
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

TOPICS = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>offers</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>customers</Name><MessageType>nvfix</MessageType></Topic>
  <Topic><Name>^copy-</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>trades</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>customers</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>offers</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability><Expiration>enabled</Expiration>
  </Topic>
  <Topic>
    <Name>fleeting</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>trades</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>copy-sides</Name><MessageType>json</MessageType><Key>/side</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>copy-names</Name><MessageType>json</MessageType><Key>/name</Key>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>slow</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval><Filter>/qty &gt; 3</Filter>
    <Enrichment><Field>/qty * 2 AS /double</Field></Enrichment>
  </ConflatedTopic>
  <View>
    <Name>sides</Name><MessageType>json</MessageType><UnderlyingTopic>slow</UnderlyingTopic>
    <Projection>
      <Field>/side</Field><Field>SUM(/px) AS /sum</Field><Field>AVG(/double) AS /avg</Field>
      <Field>MIN(/px) AS /min</Field><Field>MAX(/sym) AS /max</Field>
      <Field>COUNT_DISTINCT(/sym) AS /distinct</Field><Field>STDDEV_POP(/qty) AS /pop</Field>
      <Field>GROUP_CONCAT(/sym) AS /list</Field>
    </Projection>
    <Grouping><Field>/side</Field></Grouping>
  </View>
  <View>
    <Name>names</Name><MessageType>json</MessageType>
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
  <View>
    <Name>offered</Name><MessageType>json</MessageType><UnderlyingTopic>offers</UnderlyingTopic>
    <Projection><Field>/sym</Field><Field>COUNT(/id) AS /offers</Field></Projection>
    <Grouping><Field>/sym</Field></Grouping>
  </View>
  <View>
    <Name>traded</Name><MessageType>json</MessageType><UnderlyingTopic>trades</UnderlyingTopic>
    <Projection><Field>/sym</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/sym</Field></Grouping>
  </View>
  <View>
    <Name>sizes</Name><MessageType>json</MessageType><UnderlyingTopic>traded</UnderlyingTopic>
    <Projection><Field>/qty</Field><Field>COUNT(/sym) AS /symbols</Field></Projection>
    <Grouping><Field>/qty</Field></Grouping>
  </View>
  <View>
    <Name>unlogged</Name><MessageType>json</MessageType><UnderlyingTopic>fleeting</UnderlyingTopic>
    <Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping>
  </View>
</SOW>
"""


class Place:
    """A server with its directory, and what the command line calls them."""

    def __init__(self, server: RunningServer, directory: Path) -> None:
        self.server = server
        self.journal = directory / "journal"
        self.config = directory / "config.xml"
        self.uri = f"tcp://127.0.0.1:{server.port}/amps"

    def view(self, name: str, *arguments: object) -> list[str]:
        """The command line of the job."""
        return ["--quiet", "view", str(self.config), name, *map(str, arguments)]

    def bodies(self, topic: str) -> list[bytes]:
        """The records of a topic."""
        with self.server.log_on("reader") as peer:
            return sorted(query(peer, topic).bodies)

    def agree(self, topic: str, view: str) -> bool:
        """Whether a topic has the records of a view, of which there are some."""
        there = self.bodies(view)
        return bool(there) and self.bodies(topic) == there


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server that all tests use, with records in it."""
    directory = tmp_path_factory.mktemp("stream-views")
    with running_server(directory, elements=TOPICS) as running:
        place = Place(running, directory)
        change_at_random(place, random.Random(1))
        yield place


def change_at_random(place: Place, chance: random.Random) -> None:
    """Publish, update, move and delete records of all topics."""
    with place.server.log_on("publisher") as peer:
        for _ in range(300):
            order = {
                "id": chance.randrange(80),
                "side": chance.choice(["buy", "sell", None, 1]),
                "qty": chance.randrange(12),
                "px": chance.choice([1.1, 2.2, -1e300, 1e300, "3", "x", None, 7]),
                "sym": chance.choice(["A", "B", "9", 10, "", None]),
                "cust": chance.choice([1, 2, 3, 4, "none", None]),
            }
            peer.publish("orders", json.dumps(order).encode())
        gone = f"/id % 7 = {chance.randrange(7)}"
        peer.ask({"c": "sow_delete", "cid": "d", "t": "orders", "f": gone, "a": "processed"})
        peer.flush()
    with place.server.log_on("customers", "nvfix") as peer:
        for _ in range(3):
            body = f"id={chance.randrange(1, 5)}\x01name={chance.choice(['Ann', 'Bob', 'Cid'])}\x01"
            peer.publish("customers", body.encode())
        gone = f"/id = {chance.randrange(1, 5)}"
        peer.ask({"c": "sow_delete", "cid": "d", "t": "customers", "f": gone, "a": "processed"})
        peer.flush()


@pytest.fixture
def two_partitions(spark: SparkSession) -> Iterator[None]:
    """What goes through a shuffle comes in two partitions, as by default on two cores."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("two_partitions")
def test_a_view_goes_on_from_its_checkpoint(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A view over joined topics, published: equal to the server's, and each change once."""
    job = place.view("names", "--journals", place.journal, "--follow", "--until-caught-up")
    job += ["--checkpoint", str(tmp_path / "state"), "--publish", f"{place.uri}/json"]
    job += ["--topic", "copy-names"]
    assert main(job) == 0, capsys.readouterr()
    assert place.agree("copy-names", "names")
    # As if it had been killed after the last batch was published and before that was noted down.
    commits = tmp_path / "state" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()
    change_at_random(place, random.Random(2))
    with place.server.log_on("publisher", "nvfix") as peer:
        peer.ask({"c": "sow_delete", "t": "customers", "f": "1=1", "a": "processed"})
    assert main(job) == 0, capsys.readouterr()
    assert place.agree("copy-names", "names")
    assert len(place.bodies("copy-names")) == 1  # the orders without a customer
    told = defaultdict(list)
    for body in logged(place.server, "copy-names"):
        told[json.loads(body)["name"]].append(body)
    assert all(one != other for bodies in told.values() for one, other in pairwise(bodies))


@ONLY_LONG
@pytest.mark.usefixtures("spark")
def test_a_driver_that_is_killed(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process goes on with its view, which is one over a conflated topic."""
    job = place.view("sides", "--journals", place.journal, "--follow")
    job += ["--checkpoint", str(tmp_path / "state"), "--publish", f"{place.uri}/json"]
    job += ["--topic", "copy-sides"]
    options = ["--master=local[2]", "--conf=spark.sql.shuffle.partitions=1"]
    options.append(f"--conf=spark.driver.extraJavaOptions={quick_java()}")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", *job, *options],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: logged(place.server, "copy-sides") != [] or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        change_at_random(place, random.Random(3))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    change_at_random(place, random.Random(4))
    assert main([*job, "--until-caught-up"]) == 0, capsys.readouterr()
    until(lambda: place.agree("copy-sides", "sides"))  # the server conflates


def test_records_that_expire_leave_a_view_that_is_followed(
    place: Place, spark: SparkSession, tmp_path: Path
) -> None:
    """To Parquet, as a log of changes: a folder for each micro-batch that has any."""
    spec = read_configuration(str(place.config))
    output = tmp_path / "changes"
    with place.server.log_on("publisher") as peer:
        peer.publish("offers", b'{"id":1,"sym":"A"}')
        peer.publish("offers", b'{"id":2,"sym":"A"}', e=3)
        peer.publish("offers", b'{"id":3,"sym":"B"}', e=4)
        peer.flush()
    source, target = Journals(place.journal), ParquetFiles(output)
    view = TopicRef("offered", "json")
    with stream_view(spark, spec, view, source, target, tmp_path / "state") as running:
        until(lambda: latest(output) == [b'{"sym":"A","offers":1}'], running)
    assert latest(output) == place.bodies("offered")
    assert not list(output.glob("*.tmp"))


def latest(output: Path) -> list[bytes]:
    """What the records are after all changes in a directory."""
    records: dict[str, bytes] = {}
    for folder in sorted(output.glob("batch=*"), key=lambda one: int(one.name.partition("=")[2])):
        for row in pq.read_table(folder, partitioning=None).to_pylist():
            if row["is_gone"]:
                del records[row["key"]]
            else:
                records[row["key"]] = row["body"]
    return sorted(records.values())


@pytest.mark.usefixtures("spark")
def test_a_server_is_followed(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A view over a view, of what a bookmark subscription gives; to standard output."""
    publish(place.server, "trades", [{"id": i, "sym": "ABC"[i % 3], "qty": 1} for i in range(6)])
    job = place.view("sizes", "--server", place.uri, "--follow", "--until-caught-up")
    job += ["--checkpoint", str(tmp_path / "state")]
    assert main(job) == 0, capsys.readouterr()
    publish(place.server, "trades", [{"id": i, "sym": "C", "qty": i} for i in range(6)])
    assert main(job) == 0, capsys.readouterr()
    told = [line.partition("\t")[2] for line in capsys.readouterr().out.splitlines()]
    assert told[0] == '{"qty":2.0,"symbols":3}'
    assert sorted(told[1:]) == ["deleted", '{"qty":15.0,"symbols":1}']
    assert place.bodies("sizes") == [b'{"qty":15.0,"symbols":1}']


@pytest.mark.usefixtures("spark")
def test_what_leaves_a_topic_leaves_the_view_of_a_server(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted by filter and by message; expired, while no query runs; out of a topic's filter."""
    names = ("sides", "offered")

    def follow(folder: str, *names: str) -> None:
        for name in names:
            job = place.view(name, "--server", place.uri, "--follow", "--until-caught-up")
            job += ["--checkpoint", str(tmp_path / folder / f"{name}-state")]
            assert main([*job, "--output", str(tmp_path / folder / name)]) == 0, capsys.readouterr()

    def is_told(folder: str, name: str) -> bool:
        return latest(tmp_path / folder / name) == place.bodies(name) != []

    with place.server.log_on("publisher") as peer:
        for number in range(8):
            lifetime = {"e": 2} if number % 2 else {}
            peer.publish("offers", b'{"id":%d,"sym":"%d"}' % (100 + number, number), **lifetime)
        peer.flush()
    follow("on", *names)
    with place.server.log_on("publisher") as peer:
        command = {"c": "sow_delete", "cid": "d", "a": "processed"}
        peer.ask(command | {"t": "offers", "f": "/id = 100"})
        peer.ask(command | {"t": "offers"}, b'{"id":102}')
        peer.ask(command | {"t": "orders", "f": "/id < 40"})
        for number in range(40, 60):  # the conflated topic's filter does not let these through
            peer.publish("orders", b'{"id":%d,"side":"buy","qty":1}' % number)
        peer.flush()
    change_at_random(place, random.Random(6))
    until(lambda: b'{"sym":"7","offers":1}' not in place.bodies("offered"))
    follow("on", *names)
    follow("anew", "offered")
    for name in names:
        until(partial(is_told, "on", name))  # the server conflates
    assert is_told("anew", "offered")
    assert b'{"sym":"4","offers":1}' in place.bodies("offered")
    assert b'{"sym":"2","offers":1}' not in place.bodies("offered")


def test_a_dry_run_says_what_would_be_followed(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And makes nothing, nor starts Spark."""
    job = place.view("sizes", "--server", place.uri, "--follow", "--checkpoint", tmp_path / "state")
    assert main(["--dry-run", *job]) == 0
    said = f"[json].[sizes] over [json].[trades] from the log of {place.uri} to standard output\n"
    assert capsys.readouterr().out == said
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("spark")
def test_no_password_is_said_nor_kept(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the servers that a job reads from and publishes to: not even where nothing is done yet."""
    publish(place.server, "copy-sides", [{"side": "buy"}])
    server = place.uri.replace("//", "//ann:s3cret@")
    state = str(tmp_path / "state")
    follow = ["--follow", "--checkpoint", state, "--publish", f"{server}/json"]
    topic, journal = ["--topic", "copy-names"], str(place.journal)
    replay = [
        "replay",
        journal,
        f"{server}/json",
        "--topic",
        "^copy-sides$",
        "--state",
        state + ".r",
    ]
    traded = ["view", str(place.config), "traded", "--server", server]
    rebuild = ["rebuild", str(place.config), "--topic", "traded", "--publish", f"{server}/json"]
    for job in (
        ["--dry-run", *place.view("names", "--server", server, *follow)],
        ["--dry-run", *traded],
        ["--dry-run", *rebuild, "--journals", journal],
        ["--dry-run", *replay],
        replay,
        [*place.view("names", "--server", server, *follow, *topic), "--until-caught-up"],
        [*traded, "--publish", f"{server}/json", *topic],
    ):
        assert main(job) == 0, capsys.readouterr()
        said = capsys.readouterr()
        assert "s3cret" not in said.out + said.err, job
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"s3cret" in path.read_bytes()]


REFUSED = {
    "no checkpoint": ("sides", "--journals {journal} --follow", "--follow: requires --checkpoint"),
    "not following": (
        "sides",
        "--journals {journal} --checkpoint {tmp}/state",
        "--checkpoint: requires --follow",
    ),
    "not of the past": (
        "sides",
        "--journals {journal} --follow {state} --at 0",
        "--at: excludes --follow",
    ),
    "topic not in the log": (
        "unlogged",
        "--journals {journal} --follow {state}",
        "its topic [json].[fleeting] is not in the TransactionLog",
    ),
    "no journals": (
        "sides",
        "--journals {tmp}/nowhere --follow {state}",
        "/nowhere: no such directory",
    ),
    "server away": (
        "traded",
        "--server {nowhere} --follow {state}",
        "option server='tcp://127.0.0.1:1/amps/json': ",
    ),
    "target away": (
        "sides",
        "--journals {journal} --follow {state} --publish {nowhere}/json",
        "option server='tcp://127.0.0.1:1/amps/json': ",
    ),
    "target not in the log": (
        "sides",
        "--journals {journal} --follow {state} --publish {uri}/json",
        "option topic='sides': it is not in the server's TransactionLog",
    ),
    "target keeps no records": (
        "sides",
        "--journals {journal} --follow {state} --publish {uri}/json --topic copy-0",
        "option topic='copy-0': ",
    ),
    "output is there": (
        "sides",
        "--journals {journal} --follow {state} --output {tmp}",
        "exists already, and the checkpoint is new",
    ),
    "checkpoint is something else": (
        "sides",
        "--journals {journal} --follow --checkpoint {journal}",
        "contains other files",
    ),
    "checkpoint of another view": (
        "sides",
        "--journals {journal} --follow --checkpoint {other}",
        "belongs to another view, [json].[names] as defined ",
    ),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_followed_is_refused(
    place: Place, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the option and the cause, and before anything is written."""
    name, arguments, expected = REFUSED[case]
    other = tmp_path / "other"
    other.mkdir()
    identity = {"view": "[json].[names] as defined 0", "source": "", "target": ""}
    (other / "amps-view.json").write_text(json.dumps(identity))
    nowhere = "tcp://127.0.0.1:1/amps"
    state = f"--checkpoint {tmp_path}/state"
    known = {
        "journal": place.journal,
        "tmp": tmp_path,
        "uri": place.uri,
        "other": other,
        "nowhere": nowhere,
        "state": state,
    }
    before = {path for path in tmp_path.rglob("*") if path.name != "amps-view.lock"}
    assert main(place.view(name, *arguments.format(**known).split())) == 1
    assert expected in capsys.readouterr().err
    after = {path for path in tmp_path.rglob("*") if path.name != "amps-view.lock"}
    assert after - {tmp_path / "state"} == before


def test_one_run_at_a_time_uses_a_checkpoint(tmp_path: Path) -> None:
    """Another one is told so; when the first is over, it may."""
    identity = ViewIdentity("a view", "a source", "a target")
    with (
        lock_checkpoint(tmp_path, identity) as is_new,
        pytest.raises(PipelineError, match="another run is using it"),
        lock_checkpoint(tmp_path, identity),
    ):
        raise AssertionError("both have it")
    assert is_new
    store_identity(tmp_path, identity)
    with lock_checkpoint(tmp_path, identity) as is_new:
        assert not is_new


@pytest.mark.usefixtures("spark")
def test_a_view_is_rebuilt_from_journals(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To Parquet, for a view has no file."""
    output = tmp_path / "traded"
    job = ["--quiet", "rebuild", str(place.config), "--topic", "traded"]
    job += ["--output", str(output), "--journals", str(place.journal)]
    assert main(job) == 0, capsys.readouterr()
    bodies = pq.read_table(output).column("body").to_pylist()
    assert sorted(bodies) == place.bodies("traded") != []
