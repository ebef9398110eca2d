"""A part of the transaction log of a running server, read once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.pipeline.topics import bookmarks, publish, reading
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def marks(server: RunningServer) -> list[str]:
    """A topic of the log alone, of which these are the bookmarks."""
    publish(server, "log-part", [{"id": i} for i in range(20)])
    return [mark or "" for mark in bookmarks(server, "log-part")]


@pytest.mark.parametrize(
    ("bookmark", "options", "expected"),
    [
        ("[0:0|1|]", {}, range(20)),
        ("[{2}:{5}]", {}, range(2, 6)),
        ("({2}:{5})", {}, range(3, 5)),
        ("[{18}:0|1|]", {}, range(18, 20)),
        ("[20200101T000000Z:20200102T000000Z)", {}, range(0)),
        ("[20200101T000000Z:20990101T000000Z)", {}, range(20)),
        ("[0:0|1|]", {"filter": "/id > 11"}, range(12, 20)),
    ],
)
def test_a_range_of_bookmarks(
    spark: SparkSession,
    server: RunningServer,
    marks: list[str],
    bookmark: str,
    options: dict[str, Any],
    expected: range,
) -> None:
    """As a replay has it."""
    bookmark = bookmark.format(*marks)
    frame = reading(spark, server, "log-part", bookmark=bookmark, **options)
    rows = frame.schema("id INT, _bookmark STRING").load().collect()
    assert [row.id for row in rows] == list(expected)
    assert [row._bookmark for row in rows] == [marks[i] for i in expected]


def test_it_is_divided_among_tasks(spark: SparkSession, server: RunningServer) -> None:
    publish(server, "log-large", [{"id": i} for i in range(5_000)])
    reader = reading(spark, server, "log-large", bookmark="[0:0|1|]", partitions=3)
    frame = reader.schema("id INT").load()
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(row.id for row in frame.collect()) == list(range(5_000))


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("log-part", {"orderby": "/id"}, "option orderby='/id': it is for records"),
        ("log-part", {"bookmark": "[7|7|:0|1|]"}, "option bookmark='.7|7|"),
        ("log-part", {"bookmark": "[0:"}, "must end with"),
        ("log-part", {"options": "conflation=1s"}, "conflation is not supported for reads"),
        ("nowhere", {}, "option topic='nowhere': it is not in the server's TransactionLog"),
    ],
)
def test_what_cannot_be_read(
    spark: SparkSession, server: RunningServer, topic: str, options: dict[str, str], error: str
) -> None:
    given = {"bookmark": "[0:0|1|]"} | options
    with pytest.raises(PySparkException, match=error):
        reading(spark, server, topic, **given).schema("id INT").load().collect()
