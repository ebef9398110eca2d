"""`amps-pipeline stats`: messages, bytes and top keys of every topic and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.jobs.sources import add_source, source_of

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.entries import EntrySource
    from pipeline.jobs.run import JobRun

HELP: Final = "count messages, bytes and top keys of every topic and hour"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    add_source(parser)
    parser.add_argument("--bookmark", default="", help="bookmark or range to count; default: all")
    parser.add_argument("--top", type=int, default=3, help="number of top keys; default: 3")
    parser.add_argument("--json", action="store_true", help="print JSON, one line per row")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed.
    """
    if options.top < 0:
        raise PipelineError(f"--top={options.top}: expected a number of keys, from 0")
    source = source_of(options, bookmark=options.bookmark)
    source.require_topic()
    if run.is_dry:
        run.print_text(f"{options.source}: statistics of {options.topic or 'all topics'}")
        return
    table = statistics(run.spark(), source, options.top)
    if options.json:
        from pyspark.sql import functions as F

        for (line,) in table.select(F.to_json(F.struct("*"))).toLocalIterator():
            run.print_text(str(line))
        return
    run.print_text(f"{'topic':<32} {'hour':<17} {'messages':>12} {'bytes':>16}  top keys")
    for row in table.toLocalIterator():
        keys = ", ".join(f"{key.key} ({key.messages})" for key in row.top_keys)
        hour = row.hour.strftime("%Y-%m-%d %H:%M")
        run.print_text(f"{row.topic:<32} {hour:<17} {row.messages:>12,} {row.bytes:>16,}  {keys}")


def statistics(spark: SparkSession, source: EntrySource, top: int) -> DataFrame:
    """Return messages, bytes and the keys with the most messages.

    Args:
        spark: the Spark session.
        source: the entries to count; deletes count as messages.
        top: the number of keys to name.

    Returns:
        Columns topic, hour, messages, bytes and top_keys (an array of key and messages).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    entries = source.entries(spark, "topic", "timestamp", "length", "sow_key")
    by_key = (
        entries.groupBy("topic", F.date_trunc("hour", "timestamp").alias("hour"), "sow_key")
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("length").alias("bytes"))
        .withColumn(
            "place",
            F.row_number().over(
                Window.partitionBy("topic", "hour").orderBy(
                    F.col("sow_key").isNull(), F.desc("messages"), "sow_key"
                )
            ),
        )
    )
    counts = F.col("sow_key").isNotNull() & (F.col("place") <= top)
    key = F.when(
        counts,
        F.struct("place", F.col("sow_key").alias("key"), F.col("messages").alias("messages")),
    )
    named = F.transform(F.array_sort(F.collect_list(key)), lambda one: one.dropFields("place"))
    return (
        by_key.groupBy("topic", "hour")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
            named.alias("top_keys"),
        )
        .orderBy("topic", "hour")
    )
