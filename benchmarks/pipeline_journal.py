"""What reading journals on Spark costs, beside Spark reading the same messages from Parquet.

`python -m benchmarks.pipeline_journal [ROWS]` writes that many messages of 1 KB (400,000 unless
said otherwise) to journals, copies them to Parquet, and prints for one core and for two: rows a
second, and rows a second of processor time, which is what remains comparable on a machine that does
other work. Processor time is that of Python, the Java of Spark and its workers together. The better
of three runs counts.

The peer has the messages as a string column, and reads their fields with `from_json`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.journal import Journal, JournalSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 400_000
_RUNS: Final = 3
_TICKS: Final = os.sysconf("SC_CLK_TCK")

_FIELDS: Final = "symbol string, side string, qty bigint, price double, account string"
_FIVE: Final = "symbol = 'IBM' and side = 'B' and qty > 100 and price < 90 and account <> 'A7'"


def write_journal(directory: Path, rows: int) -> None:
    """Write messages of 1 KB."""
    chance = random.Random(1)
    bodies = [_message(chance, number) for number in range(1000)]
    settings = JournalSettings("bench", directory, file_size=256 << 20, preallocated=1)
    journal = Journal(settings, lambda: time.time_ns() // 1000, lambda _: None, lambda _: None)
    journal.start()
    topic = journal.topic("json", "orders")
    for sequence in range(1, rows + 1):
        journal.append(topic, 7, sequence, bodies[sequence % 1000])
    journal.close()


def _message(chance: random.Random, number: int) -> bytes:
    order = {
        "id": number,
        "symbol": chance.choice(["IBM", "MSFT", "AAPL", "TSLA"]),
        "side": chance.choice("BS"),
        "qty": chance.randrange(1, 1000),
        "price": round(chance.random() * 100, 2),
        "account": f"A{chance.randrange(100)}",
        "note": "",
    }
    order["note"] = "x" * (1024 - len(json.dumps(order)))
    return json.dumps(order).encode()


def measure(directory: Path, rows: int, cores: int) -> None:
    """Measure on some cores, and print JSON: name -> rows a second, and of processor time."""
    from pipeline import session

    spark = session(master=f"local[{cores}]", conf={"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("OFF")
    parquet = str(directory / "parquet")
    if not Path(parquet).exists():
        _journal(spark, directory, "body string").write.parquet(parquet)
    found = {
        name: _best(job, rows)
        for name, job in {
            **_of_journals(spark, directory),
            **_of_parquet(spark, parquet),
        }.items()
    }
    print(json.dumps(found))
    spark.stop()


def _journal(spark: SparkSession, directory: Path, schema: str) -> DataFrame:
    reader = spark.read.format("amps-journal").schema(schema).option("pushdown", "true")
    return reader.load(str(directory / "journal"))


def _of_journals(spark: SparkSession, directory: Path) -> dict[str, Callable[[], object]]:
    def frame(schema: str) -> DataFrame:
        return _journal(spark, directory, schema)

    return {
        "journal: records, no body": lambda: _read(frame("_txid bigint, _timestamp timestamp")),
        "journal: messages": lambda: _read(frame("body binary")),
        "journal: five fields": lambda: _read(frame(_FIELDS)),
        "journal: filtered by five": lambda: frame(_FIELDS).where(_FIVE).count(),
        "journal: aggregated": lambda: _sum(frame("symbol string, qty bigint")),
    }


def _of_parquet(spark: SparkSession, path: str) -> dict[str, Callable[[], object]]:
    def frame(schema: str) -> DataFrame:
        rows = spark.read.parquet(path).selectExpr(f"from_json(body, '{schema}') as o")
        return rows.select("o.*")

    return {
        "parquet: messages": lambda: _read(spark.read.parquet(path)),
        "parquet: five fields": lambda: _read(frame(_FIELDS)),
        "parquet: filtered by five": lambda: frame(_FIELDS).where(_FIVE).count(),
        "parquet: aggregated": lambda: _sum(frame("symbol string, qty bigint")),
    }


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: DataFrame) -> object:
    return frame.groupBy("symbol").sum("qty").collect()


def _best(job: Callable[[], object], rows: int) -> tuple[float, float]:
    wall, processor = [], []
    for _ in range(_RUNS):
        began, used = time.perf_counter(), _processor_seconds()
        job()
        wall.append(time.perf_counter() - began)
        processor.append(_processor_seconds() - used)
    return rows / min(wall), rows / min(processor)


def _processor_seconds() -> float:
    """What this process and all below it have used."""
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
    pending, total = [os.getpid()], 0
    while pending:
        pid = pending.pop()
        total += used.get(pid, 0)
        pending += processes.get(pid, [])
    return total / _TICKS


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else ROWS
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_journal(directory / "journal", rows)
        results = [_in_a_process(directory, rows, cores) for cores in (1, 2)]
    print(f"{rows:,} messages of 1 KB; rows a second, and rows a second of processor time\n")
    print(f"{'':<28}{'1 core':>12}{'2 cores':>12}{'scale':>8}{'processor':>12}")
    for name, (one, processor) in results[0].items():
        two = results[1][name][0]
        print(f"{name:<28}{one:>12,.0f}{two:>12,.0f}{two / one:>8.2f}{processor:>12,.0f}")


def _in_a_process(directory: Path, rows: int, cores: int) -> dict[str, tuple[float, float]]:
    command = [sys.executable, "-m", __spec__.name, str(directory), str(rows), str(cores)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, tuple[float, float]] = json.loads(run.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
