"""Each row is published once, whatever is killed meanwhile."""

from __future__ import annotations

import json
from collections import Counter

from pyspark.sql import SparkSession

from tests.pipeline.killing import killing
from tests.pipeline.topics import logged, writing
from tests.support.server import RunningServer


def test_killed_tasks_go_on_where_they_were(spark: SparkSession, server: RunningServer) -> None:
    rows = 40_000
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "repeat('x', 300) fill")
    with killing(server, "log-killed", [2_000, 15_000]) as killer:
        writing(frame, server, topic="log-killed").save()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert killer.kills == 2
    ids = Counter(json.loads(body)["id"] for body in logged(server, "log-killed"))
    assert sorted(ids) == list(range(rows))
    assert set(ids.values()) == {1}
