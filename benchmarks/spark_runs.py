"""What the benchmarks of Spark share: a process for each number of cores, and processor time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from benchmarks.tables import print_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rates: TypeAlias = Mapping[str, tuple[float, float]]
"""By name, rows a second, and rows a second of processor time."""

CORES: Final = (1, 2)

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def in_a_process(module: str, *arguments: object) -> dict[str, tuple[float, float]]:
    """Run a module, and give the JSON of the last line that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, tuple[float, float]] = json.loads(run.stdout.splitlines()[-1])
    return found


def consume(frame: DataFrame) -> None:
    """Compute all rows, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def best(job: Callable[[], object], rows: int, runs: int = 3) -> tuple[float, float]:
    """The better of some runs: rows a second, and rows a second of processor time.

    The processor time is that of this process, the Java of Spark and its workers together.
    """
    wall, processor = [], []
    for _ in range(runs):
        began, used = time.perf_counter(), _processor_seconds()
        job()
        wall.append(time.perf_counter() - began)
        processor.append(_processor_seconds() - used)
    return rows / min(wall), rows / max(min(processor), 1 / _TICKS)


def print_scaling(title: str, one: Rates, two: Rates) -> None:
    """Print what was measured on one core and on two."""
    head = ("rows a second", "1 core", "2 cores", "scale", "of processor time", "us of it each")
    rows = [
        (name, one[name][0], rate, rate / one[name][0], processor, 1e6 / processor)
        for name, (rate, processor) in two.items()
    ]
    print_table(title, head, rows)


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
