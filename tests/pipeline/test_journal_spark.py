"""Journals read by Spark itself: in parallel, with its push-down, and its account of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pipeline
from tests.pipeline.journals import journal, message
from tests.pipeline.topics import rows_read


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("orders")
    with journal(directory) as writer:
        for number in range(5000):
            topic = "orders" if number % 5 else "trades"
            writer.publish(topic, message(number, side="BS"[number % 2], price=number / 4))
    return directory


def test_spark_reads_journals_in_parallel_and_hands_predicates_over(
    spark: SparkSession, orders: Path
) -> None:
    """What is read is no more than the predicates say, and they stay with their DataFrame."""
    frame = pipeline.read(
        spark,
        path=str(orders),
        piece_size="128KB",
        columns="id bigint, side string, price double, _topic string",
        where="_topic = 'orders' and side = 'B' and price > 100.5",
    )
    assert frame.rdd.getNumPartitions() > 4
    chosen = frame.where("id < 1000")
    expected = [n for n in range(1000) if n % 5 and n % 2 == 0 and n / 4 > 100.5]
    assert sorted(row.id for row in chosen.collect()) == expected
    everything = [n for n in range(5000) if n % 5 and n % 2 == 0 and n / 4 > 100.5]
    assert frame.count() == rows_read(frame) == len(everything)
    assert chosen.groupBy("side").agg(F.sum("id")).collect()[0][1] == sum(expected)


def test_a_frame_that_is_used_again_has_all_its_rows(spark: SparkSession, orders: Path) -> None:
    """Spark keeps what was pushed down for a frame's next use, so nothing is."""
    frame = spark.read.format("amps-journal").schema("id bigint").load(str(orders))
    assert frame.where("id < 10").count() == 10
    assert frame.count() == 5000
    assert frame.where("id < 10").union(frame.where("id >= 4995")).count() == 15


def test_whole_messages_have_their_metadata(spark: SparkSession, orders: Path) -> None:
    frame = spark.read.format("amps-journal").load(str(orders))
    row = frame.orderBy("txid").first()
    assert row is not None
    assert (row.topic, row.message_type, row.command, row.client) == (
        "trades",
        "json",
        "publish",
        "7",
    )
    assert frame.count() == 5000
    times = frame.where("timestamp > timestamp'2025-06-15 15:06:44.9 UTC'")
    assert times.count() == 100


def test_errors_name_the_file_and_the_entry(spark: SparkSession, tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(100):
            writer.publish("t", message(number))
            writer.journal.commit()
    path = min(tmp_path.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[8000] ^= 1
    path.write_bytes(data)
    reader = spark.read.format("amps-journal")
    with pytest.raises(PySparkException, match=rf"{path.name}: entry \d+ .*its message is damaged"):
        reader.schema("id bigint").load(str(tmp_path)).collect()
    assert reader.option("damaged", "skip").schema("id bigint").load(str(tmp_path)).count() == 99
    with pytest.raises(PySparkException, match=r"option topics: unknown"):
        spark.read.format("amps-journal").option("topics", "x").load(str(tmp_path))


def test_a_stream_follows_journals_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "journal", tmp_path / "found"

    def follow() -> list[int]:
        reader = spark.readStream.format("amps-journal").schema("id bigint")
        frame = reader.option("max_rows_per_trigger", "150").load(str(source))
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()
        return sorted(row.id for row in spark.read.parquet(str(target)).collect())

    with journal(source) as writer:
        for number in range(300):
            writer.publish("t", message(number))
        writer.journal.commit()
        assert follow() == list(range(300))
        for number in range(300, 400):
            writer.publish("t", message(number))
        writer.journal.commit()
        assert follow() == list(range(400))
