"""Messages of the transaction log as a stream."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.pipeline.topics import publish, uri
from tests.support.server import RunningServer


def stream(spark, server, topic, **options):
    reader = spark.readStream.format("amps").option("server", uri(server)).option("topic", topic)
    return reader.options(**options)


def test_smoke(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    publish(server, "log-a", [{"id": i} for i in range(5000)])

    def run(**options):
        frame = stream(spark, server, "log-a", **options).schema("id INT, _bookmark STRING").load()
        q = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "cp"))
            .trigger(availableNow=True)
            .start()
        )
        q.awaitTermination()
        print(
            [
                (p["numInputRows"], p["sources"][0]["endOffset"], p["durationMs"])
                for p in q.recentProgress
            ]
        )
        return [r.id for r in spark.read.parquet(str(tmp_path / "out")).collect()]

    assert sorted(run(max_rows_per_trigger=2000, partitions=2)) == list(range(5000))
    publish(server, "log-a", [{"id": i} for i in range(5000, 5010)])
    assert sorted(run(max_rows_per_trigger=2000, partitions=2)) == list(range(5010))
    assert 0
