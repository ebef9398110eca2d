"""What I/O threads take over from the engine's thread, beside a relay that decides nothing.

    python -m benchmarks.io_threads [ROUNDS]

The processor time of a delivery is that of the engine's thread, and of all threads of the process.
With two processors the rates say little: clients use them, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.harness import Server, amperage, relay, tool
from benchmarks.tables import print_table

ROUNDS: Final = 3
THREADS: Final = (0, 1, 3)

_WORKS: Final = {
    "1 to 10, 256 B": "-subs 10 -window 4096 -n 300000 -size 256",
    "1 to 10, 1 KB": "-subs 10 -window 4096 -n 150000 -size 1024",
    "1 to 1, 1 KB": "-subs 1 -n 800000 -size 1024",
    "1 to 1,000, 256 B": "-subs 1000 -window 200 -n 6000 -size 256",
    "1,000 with a filter each, 256 B": "-subs 1000 -filter eq -window 2000 -n 200000 -size 256",
}
"""The arguments of the load generator."""


def main(rounds: int = ROUNDS) -> None:
    """Measure and print.

    Args:
        rounds: how often everything is measured, in turns; the medians are printed.
    """
    tool("ampsload")
    results: dict[tuple[str, int | None], list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for work, arguments in _WORKS.items():
            for count in THREADS:
                with amperage(f"<Tuning><IOThreads>{count}</IOThreads></Tuning>") as server:
                    result = _measure(server, arguments.split())
                results.setdefault((work, count), []).append(result)
            if "-filter" in arguments:  # which a relay does not know
                continue
            with relay() as copying:
                result = _measure(copying, arguments.split())
            results.setdefault((work, None), []).append(result)
    print_table(
        "Processor time of a delivery, us, by the number of I/O threads",
        ["", "threads", "engine's thread", "all threads", "deliveries a second"],
        [
            [work, "a relay" if count is None else count, *_medians(results[work, count])]
            for work in _WORKS
            for count in (*THREADS, None)
            if (work, count) in results
        ],
    )


def _medians(rounds: Sequence[tuple[float, float, float]]) -> list[float]:
    return [median(column) for column in zip(*rounds, strict=True)]


def _measure(server: Server, arguments: Sequence[str]) -> tuple[float, float, float]:
    """Return microseconds of the first thread and of all, and the rate."""
    before = _used_us(server.pid)
    measured = server.load("-warm", "0", *arguments)
    after = _used_us(server.pid)
    count = measured["delivered"]
    return (
        (after[0] - before[0]) / count,
        (after[1] - before[1]) / count,
        measured["deliv_s"],
    )


def _used_us(pid: int) -> tuple[float, float]:
    """Return the processor time of the first thread of a process, and of all."""
    times_us = {
        int(task.name): int((task / "schedstat").read_text().split()[0]) / 1000
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return times_us[pid], sum(times_us.values())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
