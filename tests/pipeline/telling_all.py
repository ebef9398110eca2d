"""Reads and writes with a password, and has Spark say all that it would say to anybody.

    python -m tests.pipeline.telling_all EVENTS OPTIONS

OPTIONS are several sets of them, as JSON; the first is also tried in SQL.

What it prints is everything that a user could print: plans, errors, SQL's answers. Spark's own log,
as talkative as can be, goes to standard error, what the UI is made from to a file in EVENTS.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import pipeline
from tests.pipeline.quick_java import quick_java


def main(events: str, options: str) -> None:
    """Do it."""
    spark = pipeline.session(
        "telling",
        master="local[2]",
        conf={
            "spark.driver.extraJavaOptions": quick_java(),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
        },
    )
    spark.sparkContext.setLogLevel("DEBUG")
    several = json.loads(options)
    try_sql(spark, several[0])
    for one in several:
        try_frames(spark, one)
    spark.stop()


def try_sql(spark: SparkSession, given: dict[str, str]) -> None:
    """The same by SQL, whose text Spark shows as it is."""
    listed = ", ".join(f"'{name}' '{value}'" for name, value in {**given, "topic": "told"}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW told USING amps OPTIONS ({listed})")
    frame = spark.sql("SELECT * FROM told")
    frame.explain(True)
    print(frame.count(), "by SQL")
    spark.sql("DESCRIBE EXTENDED told").show(100, truncate=False)


def try_frames(spark: SparkSession, given: dict[str, str]) -> None:
    """Write, read, stream, and do what fails."""
    topic = {"topic": "told"}

    def write(**others: str) -> None:
        spark.sql("SELECT 1 AS id").write.format("amps").mode("append").options(
            **{**given, **topic, **others}
        ).save()

    def read(**others: str) -> Any:
        return spark.read.format("amps").options(**{**given, **topic, **others}).load()

    def stream() -> None:
        rows = spark.readStream.format("amps").options(**given, **topic).load().select("body")
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                rows.writeStream.format("amps")
                .options(**given, topic="copied", checkpointLocation=checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            query.explain(True)
            print(query.lastProgress)

    def show() -> None:
        frame = read()
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode)
        print(frame.count(), "rows", frame, frame.schema)

    write()
    show()
    stream()
    failing: list[Callable[[], Any]] = [
        lambda: read(orderby="?").count(),
        lambda: read(topic="nowhere").count(),
        lambda: read(passwort="x"),
        lambda: write(topic="nowhere"),
        lambda: read(server="tcp://localhost:1/amps/json", timeout="0.1").count(),
    ]
    for one in failing:
        try:
            one()
        except Exception:
            print("failed:", traceback.format_exc())


if __name__ == "__main__":
    main(*sys.argv[1:])
