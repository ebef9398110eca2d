"""What the benchmarks of Spark share: turns, processor time, peers, aims.

Processor time is that of Python, the Java of Spark and its workers together, without a server: it
is what remains comparable on a machine that does other work. Of some runs, in turns with the peers,
the least counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import pipeline
from benchmarks.orders import DIFFERENT, FIVE
from benchmarks.tables import print_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rates: TypeAlias = Mapping[str, tuple[float, float]]
"""By name, rows a second, and rows a second of processor time."""

RUNS: Final = 3
_MORE: Final = 3
"""Turns more for what was not measured, as a process of Spark's had ended meanwhile."""

HEAD: Final = (
    "",
    "us/row",
    "rows a second of processor time",
    "Parquet",
    "JSON files",
    "constant source",
    "aim",
    "reached",
)

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Work:
    """What has an aim.

    Attributes:
        name: what tables call it, and `Rates`.
        aim: rows a second of processor time at the least.
        parquet: the name of what Spark does with Parquet instead.
        json: and with files of the same bodies.
        constant: and with a constant source in Python, the floor; None where there is none.
    """

    name: str
    aim: float
    parquet: str
    json: str
    constant: str | None = None

    def row(self, rates: Rates, size: str) -> list[object]:
        """Its row in a table.

        Args:
            rates: what has been measured.
            size: of the messages.
        """
        rate = rates[self.name][1]
        peers = [
            None if name is None else rates[name][1]
            for name in (self.parquet, self.json, self.constant)
        ]
        reached = "yes" if rate >= self.aim else "no"
        return [f"{self.name}, {size}", 1e6 / rate, rate, *peers, self.aim, reached]


class ConstantSource(DataSource):
    """One Arrow batch of five fields again and again: what any source in Python costs."""

    @classmethod
    def name(cls) -> str:
        """What `format()` calls it."""
        return "constant"

    def schema(self) -> str:
        """The five fields."""
        return FIVE

    def reader(self, schema: StructType) -> DataSourceReader:
        """What gives the batches."""
        return _ConstantReader(schema, self.options)


class _ConstantReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._rows = int(options["rows"])
        self._tasks = int(options["tasks"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - all are alike
        count = 2500
        columns = {
            "order_id": range(count),
            "symbol": [f"SYM{number % 200:03d}" for number in range(count)],
            "side": ["BUY", "SELL"] * (count // 2),
            "qty": [number % 5000 for number in range(count)],
            "price": [number / 7 for number in range(count)],
        }
        batch = pa.RecordBatch.from_pydict(columns, to_arrow_schema(self._schema))
        for _ in range(self._rows // self._tasks // count):
            yield batch


def start(cores: int) -> SparkSession:
    """A session that has some of the machine's processors, with all that it starts."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spark = pipeline.session("benchmark", master=f"local[{cores}]")
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ConstantSource)
    return spark


def in_a_process(module: str, *arguments: object) -> dict[str, tuple[float, float]]:
    """Run a module, and give the JSON of the last line that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, tuple[float, float]] = json.loads(run.stdout.splitlines()[-1])
    return found


def consume(frame: DataFrame) -> None:
    """Compute all rows, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def in_turns(jobs: Mapping[str, Callable[[], object]], rows: int) -> Rates:
    """Run jobs in turns; the best of each counts."""
    wall, processor = dict.fromkeys(jobs, float("inf")), dict.fromkeys(jobs, float("inf"))
    for turn in range(RUNS + _MORE):
        for name, job in jobs.items():
            if turn >= RUNS and processor[name] < float("inf"):
                continue
            began, before = time.perf_counter(), _ticks()
            job()
            wall[name] = min(wall[name], time.perf_counter() - began)
            after = _ticks()
            if before.keys() <= after.keys():  # who has ended takes the ticks along
                used = max(sum(after.values()) - sum(before.values()), 1) / _TICKS
                processor[name] = min(processor[name], used)
    return {name: (rows / wall[name], rows / processor[name]) for name in jobs}


def json_files(directory: Path, bodies: list[bytes], rows: int) -> str:
    """Write bodies into files for Spark's own reader, over and over, one for each of two tasks."""
    directory.mkdir()
    text = b"\n".join(bodies) + b"\n"
    for number in range(2):
        with (directory / f"{number}.json").open("wb") as file:
            for _ in range(rows // 2 // DIFFERENT):
                file.write(text)
    return str(directory)


def print_aims(title: str, rows: list[list[object]]) -> None:
    """Print a table of works and their aims."""
    print_table(title, HEAD, rows)


def _ticks() -> dict[int, int]:
    """What this process and all below it have used, by their numbers."""
    processes: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(path.parent.name)
        processes.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))  # its own, and that of children that have ended
    pending, found = [os.getpid()], {}
    while pending:
        pid = pending.pop()
        found[pid] = used.get(pid, 0)
        pending += processes.get(pid, [])
    return found
