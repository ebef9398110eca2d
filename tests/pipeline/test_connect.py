"""Spark Connect: programs whose Spark is another process, which they only send plans to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.java import java_home
from tests.pipeline.quick_java import quick_java
from tests.pipeline.spark_commands import AT_START
from tests.pipeline.topics import logged, publish, uri
from tests.support.server import ROOT, RunningServer

PROGRAM = """
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import pipeline
from pipeline.expressions import Message, matches

server, java, checkpoint = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]")
spark = builder.config("spark.driver.extraJavaOptions", java).getOrCreate()
pipeline.register(spark)
to = {"server": server, "topic": "both-connected"}
large = pipeline.read(spark, where="qty > 1", columns="id INT, qty INT", **to)
bodies = spark.read.format("amps").load(**to)
found = bodies.where(matches("/qty = 3", Message(col("body"), "json")))
read = [sorted(map(tuple, large.collect())), found.count()]
large.selectExpr("id + 10 AS id", "qty").write.format("amps").mode("append").options(**to).save()
stream = spark.readStream.format("amps").schema("id INT").load(**to)
writer = stream.writeStream.format("amps").options(server=server, topic="log-connected")
writer.trigger(availableNow=True).start(checkpointLocation=checkpoint).awaitTermination()
print(json.dumps(read))
spark.stop()
"""


@pytest.mark.usefixtures("quick_python")
def test_a_session_of_spark_connect_reads_and_writes(server: RunningServer, tmp_path: Path) -> None:
    """Filters that the server applies, expressions, a write, a stream; as in any other session."""
    publish(server, "both-connected", [{"id": number, "qty": number} for number in (1, 2, 3)])
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = {
        "PYTHONPATH": f"{AT_START}{os.pathsep}{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    java = java_home(tmp_path)
    if java is not None:
        variables["JAVA_HOME"] = str(java)
    run = subprocess.run(
        [sys.executable, "program.py", uri(server), quick_java(), str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads(run.stdout.splitlines()[-1]) == [[[2, 2], [3, 3]], 1]
    ids = sorted(json.loads(body)["id"] for body in logged(server, "log-connected"))
    assert ids == [1, 2, 3, 12, 13]
