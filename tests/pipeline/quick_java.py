"""Java's options for Sparks of tests, which live for a minute each.

A third of what such a Spark computes is the loading of Spark's classes. An archive of them, which
Java maps into memory, is made by the first who needs it, and kept for later runs. Java looks
whether it fits, and does without where it does not.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

_ROOT: Final = Path(__file__).parents[2]
_BUILD: Final = _ROOT / "build" / "tests"

_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What lives for a minute is not worth compiling with all optimizations, a third of its time."""

_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is nothing to be told."""

_PROGRAM: Final = """
import sys
import tempfile

import pipeline

spark = pipeline.session(
    master="local[2]", conf={"spark.driver.extraJavaOptions": sys.argv[1], "spark.log.level": "OFF"}
)
with tempfile.TemporaryDirectory() as directory:
    counted = spark.range(100).selectExpr("id % 7 AS key", "string(id) AS text").groupBy("key")
    counted.count().orderBy("key").write.parquet(f"{directory}/counted")
    stream = spark.readStream.schema("key BIGINT").parquet(f"{directory}/counted").writeStream
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint")
    stream = stream.trigger(availableNow=True).format("parquet")
    stream.start(f"{directory}/copied").awaitTermination()
    java = spark.sparkContext._gateway.proc
    spark.stop()
java.stdin.close()
java.wait()
"""


@cache
def quick_java() -> str:
    """Options of a Java that starts quickly; the first call may take a minute."""
    archive = _archive()
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
        is_made = archive.stat().st_size > 0
    return f"{_SHORT_LIVED} {_QUIET} -XX:SharedArchiveFile={archive}" if is_made else _SHORT_LIVED


def _archive() -> Path:
    """Where the archive is, whose name says what it was made with."""
    spark, java = Path(pyspark.__file__).parent, shutil.which("java")
    parts = (spark / "jars", *([Path(java).resolve()] if java else []))
    made_with = repr([(str(part), part.stat().st_mtime_ns) for part in parts])
    return _BUILD / f"spark-{hashlib.sha256(made_with.encode()).hexdigest()[:12]}.jsa"


def _make(archive: Path) -> None:
    """Make it in place of others; an empty one where this Java cannot."""
    for other in _BUILD.glob("spark-*"):
        other.unlink()
    made = archive.with_suffix(".new")
    options = f"{_SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, options],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    made.touch()
    made.rename(archive)
