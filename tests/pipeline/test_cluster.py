"""Executors on machines of their own, which know nothing of Amperage but what they are sent."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

import pipeline
from pipeline.errors import PipelineError
from tests.pipeline.clusters import cluster
from tests.pipeline.spark_commands import AT_START, run_spark
from tests.pipeline.topics import logged, publish, uri
from tests.support.server import RunningServer

ROOT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "pandas", "pyarrow", "dateutil", "pytz", "six", "typing_extensions")
"""What executors need for whatever is written in Python."""

PROGRAM = """
import json
import sys
from importlib.util import find_spec

from pyspark.sql import SparkSession
import pipeline

server = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
pipeline.register(spark)
options = {"server": server, "topic": "log-shipped"}
places = spark.sparkContext.parallelize([0], 1).map(lambda _: find_spec("pipeline").origin)
[place] = places.collect()
reader = spark.read.format("amps").schema("id INT, qty INT")
records = reader.load(server=server, topic="sow-shipped")
rows = sorted(map(tuple, records.collect()))
records.write.format("amps").mode("append").options(**options).save()
spark.stop()
print("now without", flush=True)
pipeline.register(SparkSession.builder.config("spark.archives", "").getOrCreate())
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


def test_executors_have_what_the_archive_has(server: RunningServer, tmp_path: Path) -> None:
    """They read and write; without the archive, a line says what they need."""
    publish(server, "sow-shipped", [{"id": number, "qty": number} for number in (1, 2, 3)])
    (tmp_path / "program.py").write_text(PROGRAM)
    archive = pipeline.archive(tmp_path / "amperage.tar.gz")
    with cluster(tmp_path, bare_python(tmp_path), ["127.0.0.1"]) as master:
        run = run_spark(
            "spark-submit",
            "--master",
            master,
            "--archives",
            archive,
            "program.py",
            uri(server),
            directory=tmp_path,
            conf={
                "spark.executorEnv.PYTHONPATH": "amperage",
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
            },
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            PYSPARK_PYTHON="python3",
            PYTHONPATH=f"{AT_START}{os.pathsep}{ROOT}",
        )
    assert run.returncode == 0, run.stderr[-3000:]
    place, rows = json.loads(run.stdout.splitlines()[-1])
    assert Path(place).relative_to(tmp_path / "work").parts[2:4] == ("amperage", "pipeline")
    assert rows == [[1, 1], [2, 2], [3, 3]]
    assert len(logged(server, "log-shipped")) == 3
    before, _, after = run.stdout.partition("now without")
    assert "pipeline: executors" not in before
    assert f"pipeline: executors of {master} run python3, which has to have Amperage" in after
    assert "--conf spark.executorEnv.PYTHONPATH=amperage" in after


def test_an_archive_is_new_and_called_as_one(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"expected a name that ends in .tar.gz or .tgz"):
        pipeline.archive(tmp_path / "amperage.zip")
    path = tmp_path / "there.tgz"
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(PipelineError, match="is there already"):
        pipeline.archive(path)
