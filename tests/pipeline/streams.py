"""Streaming queries that end, and what they have written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

WAIT_SECONDS = 400.0
"""As long as a Spark of its own may take to start and to get going on a busy machine."""


def until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        assert query is None or query.isActive, query.exception()
        time.sleep(0.02)


def to_file(frame: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """Write a stream to files, or go on where an earlier query stopped."""
    writer = frame.writeStream.format("parquet").trigger(**trigger)
    return writer.start(str(directory / "rows"), checkpointLocation=str(directory / "checkpoint"))


def read_all(spark: SparkSession, frame: DataFrame, directory: Path) -> list[Row]:
    """Run a query over everything there is, and give what all queries have written."""
    query = to_file(frame, directory, availableNow=True)
    query.awaitTermination()
    return spark.read.parquet(str(directory / "rows")).collect()
