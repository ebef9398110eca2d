"""Errors of Java's in functions for `foreachBatch`, as Spark looks through them."""

from __future__ import annotations

import traceback

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pipeline.foreach_batch import shorten_java_errors


def test_spark_can_read_what_went_wrong(spark: SparkSession) -> None:
    """It looks for the reason of an error when a query has been stopped, in all of its text."""
    context, java = spark.sparkContext, spark.sparkContext._jvm
    assert java is not None
    stream = java.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    told = []

    def take(_: DataFrame, number: int) -> None:
        java.java.io.FileInputStream(f"/nowhere/{number}")

    for function in (take, shorten_java_errors(take)):
        try:
            function(spark.range(0), 0)
        except Exception:  # as Java is told it
            told.append(traceback.format_exc())
    calls = [text.count("\n\tat ") for text in told]
    assert calls[0] > 5 > calls[1] == 0
    with pytest.raises(Py4JJavaError, match="StackOverflowError"):  # whatever stack there is
        stream.isInterruptionException(java.py4j.Py4JException(told[0] * 1000), context._jsc.sc())
    assert not stream.isInterruptionException(java.py4j.Py4JException(told[1]), context._jsc.sc())
    assert "FileNotFoundException: /nowhere/0 (No such file or directory)" in told[1]
    stopped = java.py4j.Py4JException(f"{told[1]}: java.lang.InterruptedException")
    assert stream.isInterruptionException(stopped, context._jsc.sc())
