"""Sessions of others: started by spark-submit, or running already."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.pipeline.journals import journal
from tests.pipeline.spark_commands import run_spark

PROGRAM = """
import json
import sys
import pipeline

NAMES = ("spark.app.name", "spark.master", "spark.sql.shuffle.partitions", "spark.ui.enabled",
         "spark.sql.session.timeZone", "spark.python.unix.domain.socket.enabled")

def settings(spark):
    return {name: spark.conf.get(name, None) for name in NAMES}

spark = pipeline.session()
submitted = settings(spark)
spark.conf.set("spark.sql.shuffle.partitions", "7")
again = pipeline.session()
assert again is spark
count = spark.read.format("amps-journal").schema("id INT").load(sys.argv[1]).count()
print(json.dumps([submitted, settings(again), count]))
"""


def test_what_spark_submit_was_told_stays(tmp_path: Path) -> None:
    """And what a session has; workers run where the pipeline is, whatever the environment says."""
    (tmp_path / "journals").mkdir()
    with journal(tmp_path / "journals") as writer:
        writer.publish("t", b'{"id":1}')
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = run_spark(
        "spark-submit",
        "--master",
        "local[1]",
        "--name",
        "mine",
        "program.py",
        str(tmp_path / "journals"),
        directory=tmp_path,
        conf={
            "spark.sql.shuffle.partitions": "5",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        },
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYSPARK_PYTHON="/bin/false",
        PYTHONPATH=os.environ["PYTHONPATH"],
    )
    assert run.returncode == 0, run.stderr[-3000:]
    submitted, again, count = json.loads(run.stdout.splitlines()[-1])
    assert submitted == {
        "spark.app.name": "mine",
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.ui.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    assert again == submitted | {"spark.sql.shuffle.partitions": "7"}
    assert count == 1
