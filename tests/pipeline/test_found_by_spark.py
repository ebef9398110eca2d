"""Programs that spark-submit runs, with a Python which has Amperage.

The formats are there in every Spark; a session of the pipeline is what spark-submit was told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.journals import journal
from tests.pipeline.spark_commands import run_spark
from tests.pipeline.topics import logged, publish, uri
from tests.support.long_form import ONLY_LONG
from tests.support.server import RunningServer

PROGRAM = """
import json
import os
import sys

from pyspark.sql import SparkSession

server, journals, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sql(
    "CREATE TEMPORARY VIEW found (id INT, qty INT) USING amps"
    f" OPTIONS (server '{server}', topic 'both-found')"
)
view = spark.sql("SELECT id, qty FROM found WHERE qty > 1 ORDER BY id").collect()
spark.sql("INSERT INTO found VALUES (4, 40)")
columns = [row.col_name for row in spark.sql("DESCRIBE found").collect()]
amps = spark.read.format("amps").schema("id INT").load(server=server, topic="both-found").count()
journal = spark.read.format("amps-journal").schema("id INT").load(journals).count()
copied = spark.readStream.format("amps").schema("id INT").load(server=server, topic="log-found")
writer = copied.writeStream.format("amps").options(server=server, topic="log-copied-found")
writer.trigger(availableNow=True).start(checkpointLocation=checkpoint).awaitTermination()
ours = {"pipeline", "server"} & {name.partition(".")[0] for name in sys.modules}
print(json.dumps([view, columns, amps, journal, sorted(ours)]))
spark.stop()

import pipeline

NAMES = ("spark.app.name", "spark.master", "spark.sql.shuffle.partitions", "spark.ui.enabled",
         "spark.sql.session.timeZone", "spark.python.unix.domain.socket.enabled")

def settings(spark):
    return {name: spark.conf.get(name, None) for name in NAMES}

os.environ["PYSPARK_PYTHON"] = "/bin/false"
spark = pipeline.session()
submitted = settings(spark)
spark.conf.set("spark.sql.shuffle.partitions", "7")
again = pipeline.session()
assert again is spark
count = spark.read.format("amps-journal").schema("id INT").load(journals).count()
print(json.dumps([submitted, settings(again), count]))
"""


@pytest.fixture(scope="module")
def printed(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the values that the program prints: to start Spark for each would take long."""
    directory = tmp_path_factory.mktemp("found")
    publish(server, "both-found", [{"id": number, "qty": number} for number in (1, 2, 3)])
    publish(server, "log-found", [{"id": 1}, {"id": 2}])
    journals = directory / "journals"
    journals.mkdir()
    with journal(journals) as writer:
        writer.publish("t", b'{"id":1}')
    (directory / "program.py").write_text(PROGRAM)
    words = (uri(server), str(journals), str(directory / "checkpoint"))
    run = run_spark(
        "spark-submit",
        "--master",
        "local[1]",
        "--name",
        "mine",
        "program.py",
        *words,
        directory=directory,
        conf={
            "spark.sql.shuffle.partitions": "5",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        },
        PYSPARK_PYTHON=sys.executable,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return list(map(json.loads, run.stdout.splitlines()[-2:]))


def test_a_program_needs_to_import_nothing(printed: list[Any], server: RunningServer) -> None:
    """Records, journals, streams and SQL; and what the Python in PATH has, workers have."""
    view, columns, amps, entries, ours = printed[0]
    assert view == [[2, 2], [3, 3]]
    assert columns == ["id", "qty"]
    assert (amps, entries) == (4, 1)
    assert sorted(logged(server, "log-copied-found")) == [b'{"id":1}', b'{"id":2}']
    assert ours == []


def test_what_spark_submit_was_told_stays(printed: list[Any]) -> None:
    """And what a session has; workers run where the pipeline is, whatever the environment says."""
    submitted, again, count = printed[1]
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


SQL = """
CREATE TEMPORARY VIEW typed (id INT, qty INT) USING amps
OPTIONS (server '{server}', topic 'sow-typed');
SELECT 'sum', sum(qty) FROM typed;
"""


@ONLY_LONG
@pytest.mark.usefixtures("quick_python")
def test_sql_is_typed_into_spark_sql(server: RunningServer, tmp_path: Path) -> None:
    publish(server, "sow-typed", [{"id": number, "qty": number} for number in (1, 2, 3)])
    (tmp_path / "typed.sql").write_text(SQL.format(server=uri(server)))
    run = run_spark(
        "spark-sql",
        "-f",
        "typed.sql",
        directory=tmp_path,
        quick_python=True,
        conf={"spark.master": "local[1]"},
        PYSPARK_PYTHON=sys.executable,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "sum\t6" in run.stdout
