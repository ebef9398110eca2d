"""Tasks that Spark starts a second time because they are slow, while the first try goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.pipeline.clusters import cluster
from tests.pipeline.spark_commands import AT_START, run_spark
from tests.pipeline.test_exactly_once import assert_once
from tests.pipeline.topics import publish, uri
from tests.support.server import RunningServer

ROOT = Path(__file__).parents[2]
MESSAGES = 4_000

PROGRAM = """
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

server, results = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("amps").schema("id INT")
options = {"server": server, "partitions": 4, "max_rows_per_trigger": 2000}
rows = reader.options(topic="log-hurried", **options).load()

def slowly(batches):
    task = TaskContext.get()
    Path(results, f"attempt-{task.attemptNumber()}").touch()
    for batch in batches:
        for start in range(0, batch.num_rows, 50):
            if task.partitionId() == 0 and task.attemptNumber() == 0:
                time.sleep(0.4)
            yield batch.slice(start, 50)

writer = rows.mapInArrow(slowly, "id INT").writeStream.format("amps")
writer = writer.trigger(availableNow=True).option("checkpointLocation", f"{results}/checkpoint")
writer.options(server=server, topic="log-hurried-out").start().awaitTermination()
"""


def test_rows_are_there_once_where_tasks_run_twice(server: RunningServer, tmp_path: Path) -> None:
    """On another machine, since Spark does not start a task again where it runs already."""
    publish(server, "log-hurried", [{"id": number} for number in range(MESSAGES)])
    (tmp_path / "program.py").write_text(PROGRAM)
    python = Path(sys.executable).parent
    with cluster(tmp_path, python, ["127.0.0.1", "127.0.0.2"]) as master:
        run = run_spark(
            "spark-submit",
            "--master",
            master,
            "program.py",
            uri(server),
            str(tmp_path),
            directory=tmp_path,
            conf={
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                "spark.speculation": "true",
                "spark.speculation.interval": "50ms",
                "spark.speculation.minTaskRuntime": "100ms",
                "spark.speculation.multiplier": "1.1",
                "spark.speculation.quantile": "0.5",
            },
            PYSPARK_PYTHON=sys.executable,
            PYTHONPATH=f"{AT_START}{os.pathsep}{ROOT}",
        )
    assert run.returncode == 0, run.stderr[-3000:]
    assert (tmp_path / "attempt-1").exists(), "no task was started a second time"
    assert_once(server, "log-hurried-out", MESSAGES)
