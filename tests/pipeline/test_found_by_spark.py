"""The formats are there in every Spark that runs with a Python which has Amperage."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.pipeline.journals import journal
from tests.pipeline.spark_commands import run_spark
from tests.pipeline.topics import logged, publish, uri
from tests.support.long_form import ONLY_LONG
from tests.support.server import RunningServer

PROGRAM = """
import json
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
"""


def test_a_program_needs_to_import_nothing(server: RunningServer, tmp_path: Path) -> None:
    """Records, journals, streams and SQL; and what the Python in PATH has, workers have."""
    publish(server, "both-found", [{"id": number, "qty": number} for number in (1, 2, 3)])
    publish(server, "log-found", [{"id": 1}, {"id": 2}])
    journals = tmp_path / "journals"
    journals.mkdir()
    with journal(journals) as writer:
        writer.publish("t", b'{"id":1}')
    (tmp_path / "program.py").write_text(PROGRAM)
    words = (uri(server), str(journals), str(tmp_path / "checkpoint"))
    run = run_spark(
        "spark-submit",
        "program.py",
        *words,
        directory=tmp_path,
        conf={"spark.master": "local[1]"},
        PYSPARK_PYTHON=sys.executable,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    view, columns, amps, entries, ours = json.loads(run.stdout.splitlines()[-1])
    assert view == [[2, 2], [3, 3]]
    assert columns == ["id", "qty"]
    assert (amps, entries) == (4, 1)
    assert sorted(logged(server, "log-copied-found")) == [b'{"id":1}', b'{"id":2}']
    assert ours == []


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
