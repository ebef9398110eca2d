"""What reading journals on Spark costs, beside Parquet, JSON files and a constant source.

`python -m benchmarks pipeline_journal` writes messages of 370 bytes and of 1 KB to journals, and
prints processor time of reading five fields, and of counting what five predicates leave; both with
what they are to reach. Of mixed journals, of four topics and with messages of many forms, it reads
five and twelve fields of one topic. Then it prints rows a second on one processor and on two. What
every query costs, however few rows it has, is in all figures, and printed below the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pipeline
from benchmarks.orders import FIVE, LONG, SHORT, TWELVE, WHERE, mixed_orders, orders
from benchmarks.spark_runs import (
    Rates,
    Work,
    consume,
    in_a_process,
    in_turns,
    json_files,
    print_aims,
    start,
)
from benchmarks.tables import print_table
from server.storage.journal import Journal, JournalSettings

ROWS: Final = {SHORT: 1_000_000, LONG: 400_000}
SCALE: Final = 1.8
"""How many times as much two processors are to do as one."""

_READ: Final = Work(
    "journal, five fields", 1e6, "Parquet, five", "JSON files, five", "constant source"
)
_FILTERED: Final = Work("journal, filtered by five", 6e5, "Parquet, filtered", "JSON, filtered")
_MIXED: Final = "mixed"
_MIXED_TOPICS: Final = ("orders", "trades", "quotes", "audit")
_MIXED_ROWS: Final = len(_MIXED_TOPICS) * ROWS[SHORT]
"""Messages of all topics; the one that is read has as many as the log that is not mixed."""
_MIXED_FIVE: Final = Work(
    "mixed journal, five fields", 1e6, "Parquet, mixed, five", "JSON files, mixed, five"
)
_MIXED_TWELVE: Final = Work(
    "mixed journal, twelve fields", 5e5, "Parquet, mixed, twelve", "JSON files, mixed, twelve"
)
_EMPTY: Final = "a query"


def measure(directory: Path, size: int, cores: int) -> None:
    """Measure on some processors, and print JSON: name -> rows a second, and of processor time."""
    spark, rows = start(cores), ROWS[size]
    parquet, text = str(directory / f"parquet-{size}"), str(directory / f"json-{size}")
    options = {"path": str(directory / f"journal-{size}")}
    five = spark.read.format("amps-journal").schema(FIVE).load(**options)
    filtered = pipeline.read(spark, columns=FIVE, where=WHERE, **options)
    files = spark.read.schema(FIVE).json(text)
    if not Path(parquet).exists():
        five.write.parquet(parquet)
    constant = spark.read.format("constant").options(rows=rows, tasks=cores).load()
    few = spark.read.format("amps-journal").schema(FIVE).load(str(directory / "journal-few"))
    jobs = {
        _READ.name: lambda: consume(five),
        _FILTERED.name: filtered.count,
    }
    if cores > 1:
        jobs |= {
            _READ.parquet: lambda: consume(spark.read.parquet(parquet)),
            _READ.json: lambda: consume(files),
            "constant source": lambda: consume(constant),
            _FILTERED.parquet: lambda: spark.read.parquet(parquet).where(WHERE).count(),
            _FILTERED.json: lambda: files.where(WHERE).count(),
            _EMPTY: lambda: consume(few),
        }
    print(json.dumps(in_turns(jobs, rows)))
    spark.stop()


def measure_mixed(directory: Path) -> None:
    """Measure reading one topic of mixed journals, and print JSON as `measure` does."""
    spark = start(2)
    path = str(directory / f"journal-{_MIXED}")
    jobs: dict[str, Callable[[], object]] = {}
    for work, schema in ((_MIXED_FIVE, FIVE), (_MIXED_TWELVE, TWELVE)):
        reader = spark.read.schema(schema)
        frame = reader.format("amps-journal").load(path, topic=_MIXED_TOPICS[0])
        parquet = str(directory / work.parquet)
        frame.write.parquet(parquet)
        files = reader.json(str(directory / f"json-{_MIXED}"))
        jobs[work.name] = partial(consume, frame)
        jobs[work.parquet] = partial(consume, spark.read.parquet(parquet))
        jobs[work.json] = partial(consume, files)
    print(json.dumps(in_turns(jobs, _MIXED_ROWS // len(_MIXED_TOPICS))))
    spark.stop()


def write_journal(
    directory: Path, bodies: Sequence[bytes], rows: int, topics: Sequence[str] = ("orders",)
) -> None:
    """Write messages, to several topics in turns."""
    settings = JournalSettings("bench", directory, file_size=256 << 20, preallocated=1)
    journal = Journal(settings, lambda: time.time_ns() // 1000, lambda _: None, lambda _: None)
    journal.start()
    handles = [journal.topic_handle("json", topic) for topic in topics]
    for sequence in range(1, rows + 1):
        body = bodies[sequence // len(handles) % len(bodies)]
        journal.append(handles[sequence % len(handles)], 7, sequence, body)
    journal.close()


def main() -> None:
    """Print the tables."""
    aims: list[list[object]] = []
    scaling: list[list[object]] = []
    for size, name in ((SHORT, "370 B"), (LONG, "1 KB")):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            write_journal(directory / f"journal-{size}", orders(size), ROWS[size])
            write_journal(directory / "journal-few", orders(size), 1)
            json_files(directory / f"json-{size}", list(orders(size)), ROWS[size])
            two: Rates = in_a_process(__spec__.name, folder, size, 2)
            if size == SHORT:
                scaling = _scaling(in_a_process(__spec__.name, folder, size, 1), two)
                seconds = ROWS[size] / two[_EMPTY][1]
        aims += [work.row(two, name) for work in (_READ, _FILTERED)]
    aims += _mixed_aims()
    print_aims(f"Journals: {ROWS[SHORT]:,} messages of 370 B, {ROWS[LONG]:,} of 1 KB", aims)
    print(f"  Of its processor time, a query over one message takes {seconds:.2f} s.")
    head = ("rows a second", "1 processor", "2 processors", "scale", "aim", "reached")
    print_table("Messages of 370 B on one processor and on two, by the clock", head, scaling)


def _mixed_aims() -> list[list[object]]:
    """Rows of a table: those of mixed journals."""
    bodies = mixed_orders()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_journal(directory / f"journal-{_MIXED}", bodies, _MIXED_ROWS, _MIXED_TOPICS)
        rows = _MIXED_ROWS // len(_MIXED_TOPICS)
        json_files(directory / f"json-{_MIXED}", list(bodies), rows)
        rates: Rates = in_a_process(__spec__.name, folder)
    size = f"{sum(map(len, bodies)) // len(bodies)} B"
    return [work.row(rates, size) for work in (_MIXED_FIVE, _MIXED_TWELVE)]


def _scaling(one: Rates, two: Rates) -> list[list[object]]:
    """Rows of a table: rates on one processor and on two."""
    rows: list[list[object]] = []
    for work in (_READ, _FILTERED):
        rates = one[work.name][0], two[work.name][0]
        scale = rates[1] / rates[0]
        rows.append([work.name, *rates, scale, SCALE, "yes" if scale >= SCALE else "no"])
    return rows


if __name__ == "__main__":
    if len(sys.argv) == 2:
        measure_mixed(Path(sys.argv[1]))
    elif len(sys.argv) == 4:
        measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
