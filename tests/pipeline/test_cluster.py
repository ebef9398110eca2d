"""Executors on machines of their own, which know nothing of Amperage but what they are sent."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

import pipeline
from pipeline.errors import PipelineError
from tests.pipeline.clusters import cluster
from tests.pipeline.spark_commands import AT_START, run_spark
from tests.pipeline.test_exactly_once import assert_once
from tests.pipeline.topics import logged, publish, uri
from tests.support.long_form import ONLY_LONG
from tests.support.server import RunningServer

ROOT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "pandas", "pyarrow", "dateutil", "pytz", "six", "typing_extensions")
"""What executors need for whatever is written in Python."""

MESSAGES = 2_000

PROGRAM = """
import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
import pipeline

server, results = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
pipeline.register(spark)
options = {"server": server, "topic": "log-shipped"}
places = spark.sparkContext.parallelize([0], 1).map(lambda _: find_spec("pipeline").origin)
[place] = places.collect()
reader = spark.read.format("amps").schema("id INT, qty INT")
records = reader.load(server=server, topic="sow-shipped")
rows = sorted(map(tuple, records.collect()))
records.write.format("amps").mode("append").options(**options).save()

def slowly(batches):
    task = TaskContext.get()
    Path(results, f"attempt-{task.attemptNumber()}").touch()
    is_slow = task.partitionId() == 0 and task.attemptNumber() == 0
    deadline = time.monotonic() + 60
    for batch in batches:
        for start in range(0, batch.num_rows, 50):
            yield batch.slice(start, 50)
            while is_slow and not Path(results, "attempt-1").exists():
                time.sleep(0.1)
                if time.monotonic() > deadline:
                    break

reader = spark.readStream.format("amps").schema("id INT")
limits = {"partitions": 4, "max_rows_per_trigger": 2000}
stream = reader.load(server=server, topic="log-hurried", **limits)
writer = stream.mapInArrow(slowly, "id INT").writeStream.format("amps")
writer = writer.trigger(availableNow=True).option("checkpointLocation", f"{results}/checkpoint")
writer.options(server=server, topic="log-hurried-out").start().awaitTermination()
spark.stop()
print("now without", flush=True)
# No worker has so much memory: this session gets no executors, and needs none.
builder = SparkSession.builder.config("spark.archives", "").config("spark.executor.memory", "99g")
pipeline.register(builder.getOrCreate())
print(json.dumps([place, rows]))
"""


def bare_python(directory: Path) -> Path:
    """The commands of an environment without Amperage and most libraries that it needs."""
    borrowed = directory / "borrowed"
    borrowed.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name.partition(".")[0].partition("-")[0] in LIBRARIES:
            (borrowed / path.name).symlink_to(path)
    venv.create(directory / "bare", with_pip=False, symlinks=True)
    [packages] = directory.glob("bare/lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return directory / "bare" / "bin"


class Run(NamedTuple):
    """A run of the program, in a cluster of two machines whose Python has no Amperage."""

    output: str
    directory: Path
    master: str


@pytest.fixture(scope="module")
def run(server: RunningServer, quick_python: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that all tests look at: it takes a cluster, a driver and two executors."""
    directory = tmp_path_factory.mktemp("cluster")
    publish(server, "sow-shipped", [{"id": number, "qty": number} for number in (1, 2, 3)])
    publish(server, "log-hurried", [{"id": number} for number in range(MESSAGES)])
    (directory / "program.py").write_text(PROGRAM)
    archive = pipeline.archive(directory / "amperage.tar.gz")
    with cluster(directory, bare_python(directory), ["127.0.0.1", "127.0.0.2"]) as master:
        done = run_spark(
            "spark-submit",
            "--master",
            master,
            "--archives",
            archive,
            "program.py",
            uri(server),
            str(directory),
            directory=directory,
            quick_python=True,
            conf={
                "spark.executorEnv.PYTHONPATH": "amperage",
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                "spark.speculation": "true",
                "spark.speculation.interval": "50ms",
                "spark.speculation.minTaskRuntime": "100ms",
                "spark.speculation.multiplier": "1.1",
                "spark.speculation.quantile": "0.5",
            },
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            PYSPARK_PYTHON="python3",
            PYTHONPATH=f"{AT_START}{os.pathsep}{ROOT}",
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return Run(done.stdout, directory, master)


@ONLY_LONG
def test_executors_have_what_the_archive_has(run: Run, server: RunningServer) -> None:
    """They read and write; without the archive, a line says what they need."""
    place, rows = json.loads(run.output.splitlines()[-1])
    assert Path(place).relative_to(run.directory / "work").parts[2:4] == ("amperage", "pipeline")
    assert rows == [[1, 1], [2, 2], [3, 3]]
    assert len(logged(server, "log-shipped")) == 3
    before, _, after = run.output.partition("now without")
    assert "pipeline: executors" not in before
    assert f"pipeline: executors of {run.master} run python3, which must have Amperage" in after
    assert "--conf spark.executorEnv.PYTHONPATH=amperage" in after


@ONLY_LONG
def test_rows_are_there_once_where_tasks_run_twice(run: Run, server: RunningServer) -> None:
    """Slow tasks are tried on the other machine, while the first try goes on."""
    assert (run.directory / "attempt-1").exists(), "no task was started a second time"
    assert_once(server, "log-hurried-out", MESSAGES)


def test_an_archive_is_new_and_called_as_one(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"expected a name ending in .tar.gz or .tgz"):
        pipeline.archive(tmp_path / "amperage.zip")
    path = tmp_path / "there.tgz"
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(PipelineError, match="exists already"):
        pipeline.archive(path)
