"""What reading journals on Spark costs, beside Spark reading the same messages from Parquet.

`python -m benchmarks.pipeline_journal [ROWS]` writes that many messages of 1 KB (1,000,000 unless
said otherwise) to journals, copies them to Parquet, and prints for one core and for two: rows a
second, and rows a second of processor time, which is what remains comparable on a machine that does
other work. Processor time is that of Python, the Java of Spark and its workers together. The best
of some runs counts.

What every query costs, however few rows it has, is in all figures, and printed below the table.
The peer has the messages as a string column, and reads their fields with `from_json`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pipeline
from benchmarks.spark_runs import CORES, best, consume, in_a_process, print_scaling
from server.journal import Journal, JournalSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 1_000_000
_RUNS: Final = 3

_EMPTY: Final = "a query"
_FIELDS: Final = "symbol string, side string, qty bigint, price double, account string"
_FILTER: Final = (
    "/symbol = 'IBM' AND /side = 'B' AND /qty > 100 AND /price < 90 AND /account <> 'A7'"
)
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
    jobs = {**_of_journals(spark, directory), **_of_parquet(spark, parquet)}
    found = {name: best(job, rows, _RUNS) for name, job in jobs.items()}
    of_any, processor = best(partial(consume, _journal(spark, directory, "_txid bigint", "few")), 1)
    print(json.dumps({_EMPTY: (of_any, processor)} | found))
    spark.stop()


def _journal(
    spark: SparkSession, directory: Path, schema: str, name: str = "journal", **options: str
) -> DataFrame:
    reader = spark.read.format("amps-journal").schema(schema)
    return reader.options(**options).load(str(directory / name))


def _of_journals(spark: SparkSession, directory: Path) -> dict[str, Callable[[], object]]:
    def frame(schema: str, **options: str) -> DataFrame:
        return _journal(spark, directory, schema, **options)

    return {
        "journal: records, no body": lambda: consume(frame("_txid bigint, _timestamp timestamp")),
        "journal: messages": lambda: consume(frame("body string")),
        "journal: messages and their topics and bookmarks": lambda: consume(
            frame("body string, topic string, bookmark string")
        ),
        "journal: five fields": lambda: consume(frame(_FIELDS)),
        "journal: filtered by five": lambda: pipeline.read(
            spark, path=str(directory / "journal"), columns=_FIELDS, where=_FIVE
        ).count(),
        "journal: filtered by five, option filter": lambda: frame(
            "_txid bigint", filter=_FILTER
        ).count(),
        "journal: aggregated": lambda: _sum(frame("symbol string, qty bigint")),
    }


def _of_parquet(spark: SparkSession, path: str) -> dict[str, Callable[[], object]]:
    def frame(schema: str) -> DataFrame:
        rows = spark.read.parquet(path).selectExpr(f"from_json(body, '{schema}') as o")
        return rows.select("o.*")

    return {
        "parquet: messages": lambda: consume(spark.read.parquet(path)),
        "parquet: five fields": lambda: consume(frame(_FIELDS)),
        "parquet: filtered by five": lambda: frame(_FIELDS).where(_FIVE).count(),
        "parquet: aggregated": lambda: _sum(frame("symbol string, qty bigint")),
    }


def _sum(frame: DataFrame) -> object:
    return frame.groupBy("symbol").sum("qty").collect()


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else ROWS
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_journal(directory / "journal", rows)
        write_journal(directory / "few", 1)
        one, two = (in_a_process(__spec__.name, folder, rows, cores) for cores in CORES)
    seconds = 1 / two.pop(_EMPTY)[1]
    del one[_EMPTY]
    print_scaling(f"{rows:,} messages of 1 KB", one, two)
    print(f"  Of its processor time, a query over one message takes {seconds:.2f} s.")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
