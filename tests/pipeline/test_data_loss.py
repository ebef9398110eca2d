"""Streams whose log does not go back far enough any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.journals import journal
from tests.pipeline.streams import read_all
from tests.pipeline.topics import publish, streaming
from tests.support.old_journals import PER_FILE, fill, make_old, on_topic, tell
from tests.support.server import (
    CONFIGURATION,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import wait_until

LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^log-</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def ids(spark: SparkSession, frame: DataFrame, directory: Path) -> list[int]:
    """What all queries have read."""
    return sorted(row.id for row in read_all(spark, frame, directory))


def test_a_server_whose_journals_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=LOG, transports="", level="info")
    stream = tmp_path / "stream"
    with running_configuration(tmp_path, text, port) as server:
        publish(server, "log-quiet", [{"id": 1}])
        frame = streaming(spark, server, "log-quiet").schema("id INT").load()
        assert ids(spark, frame, stream) == [1]
    shutil.rmtree(tmp_path / "journal")
    with running_configuration(tmp_path, text, port) as server:
        publish(server, "log-quiet", [{"id": 2}, {"id": 3}])
        with pytest.raises(PySparkException) as caught:
            ids(spark, frame, stream)
        assert "the position of this stream: journal files have been removed" in str(caught.value)
        assert "option bookmark" not in str(caught.value)
        unknown = streaming(spark, server, "log-quiet", bookmark="7|7|").schema("id INT").load()
        with pytest.raises(PySparkException, match="option bookmark='7"):
            ids(spark, unknown, tmp_path / "other")
        # As if it had been killed before that batch was noted down, which has to be repeated then.
        for name in ("0", ".0.crc"):
            (stream / "checkpoint" / "commits" / name).unlink()
        lenient = streaming(spark, server, "log-quiet", fail_on_data_loss=False)
        assert ids(spark, lenient.schema("id INT").load(), stream) == [1, 2, 3]


ACTIONS = f"""
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <Topic><Name>^(log-.*|orders)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>{on_topic("remove")}</Actions>
"""


def test_journals_that_are_removed_take_something_of_some_topics_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream goes on where nothing of its topic was in them; else it says what is gone."""
    with running_server(tmp_path, elements=ACTIONS) as server:
        publish(server, "log-quiet", [{"id": 1}])
        publish(server, "log-lost", [{"id": 1}])
        frames = {
            name: streaming(spark, server, name).schema("id INT").load()
            for name in ("log-quiet", "log-lost", "log-.*")
        }
        streams = {name: tmp_path / name.replace(".*", "all") for name in frames}
        for name, count in (("log-quiet", 1), ("log-lost", 1), ("log-.*", 2)):
            assert len(ids(spark, frames[name], streams[name])) == count
        publish(server, "log-lost", [{"id": 2}])
        fill(server, 1, 2 * PER_FILE)
        first = tmp_path / "journal" / "test-instance.0000000000.journal"
        make_old(first)
        tell(server, "remove", "1d")
        wait_until(lambda: not first.exists())
        for name in ("log-quiet", "log-lost"):
            publish(server, name, [{"id": 3}])
        assert ids(spark, frames["log-quiet"], streams["log-quiet"]) == [1, 3]
        for name in ("log-lost", "log-.*"):
            with pytest.raises(
                PySparkException, match=r"its messages until 20.*Z, up to .* are removed"
            ):
                ids(spark, frames[name], streams[name])
        lenient = streaming(spark, server, "log-lost", fail_on_data_loss=False)
        found = ids(spark, lenient.schema("id INT").load(), streams["log-lost"])
        assert found == [1, 3]


def test_journals_that_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "journals"
    directory.mkdir()

    def read(**options: bool) -> list[int]:
        reader = spark.readStream.format("amps-journal").option("topic", "quiet").options(**options)
        frame = reader.schema("id INT").load(str(directory))
        return ids(spark, frame, tmp_path / "stream")

    with journal(directory) as writer:
        writer.publish("quiet", b'{"id":1}')
        assert read() == [1]
        for _ in range(400):
            writer.publish("busy", b"x" * 10_000)
        writer.publish("quiet", b'{"id":2}')
    first, *_ = sorted(directory.glob("*.journal"))
    first.unlink()
    with pytest.raises(PySparkException, match="do not have all entries from"):
        read()
    assert read(fail_on_data_loss=False) == [1, 2]
    shutil.rmtree(directory)
    directory.mkdir()
    with journal(directory) as writer:
        writer.publish("quiet", b'{"id":3}')
        with pytest.raises(PySparkException, match="the log was created anew"):
            read()
        assert read(fail_on_data_loss=False) == [1, 2, 3]
