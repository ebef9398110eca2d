"""What each step of a message costs the server: the figures of the cost model in docs/scaling.md.

    python -m benchmarks costs

Processor time of all threads of the server, of a message of 256 B and of one of 1 KB, which gives
what a step costs and what each KB adds. A step is the difference between two works, of which one
has the step; all works are measured in turns.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.harness import tool
from benchmarks.tables import print_table
from benchmarks.works import WORKS, serving

ROUNDS: Final = 3
SECONDS: Final = 1.5
_MORE_KB: Final = 0.75
"""By how many KB the larger body is larger."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done with a message.

    Attributes:
        what: what the table calls it.
        work: a work that has it, whose name with `-1k` is the same with 1 KB.
        without: one that lacks it, if there is any.
        times: how often it is done with each message.
    """

    what: str
    work: str
    without: str = ""
    times: int = 1


STEPS: Final = (
    Step("a publish: reading, cutting, routing", "publish"),
    Step("a delivery, to the first subscriber", "plain", "publish"),
    Step("a delivery, to each further one", "fan-out", "plain", 9),
    Step("a filter that matches, with its look-up", "filter", "plain"),
    Step("five predicates that hardly ever match", "five", "publish"),
    Step("a record in a file", "records", "publish"),
    Step("an entry in the log, and its persisted ack", "log", "publish"),
    Step("both", "records-log", "publish"),
)


def main() -> None:
    """Measure and print."""
    tool("ampsload")
    names = {name for step in STEPS for name in (step.work, step.without) if name}
    costs = _costs(sorted([*names, *map(_larger, names)]))
    rows = []
    for step in STEPS:
        small = costs[step.work]
        large = costs[_larger(step.work)]
        if step.without:
            small -= costs[step.without]
            large -= costs[_larger(step.without)]
        small, large = small / step.times, large / step.times
        rows.append([step.what, small, large, (large - small) / _MORE_KB])
    head = ["", "256 B", "1 KB", "for each KB"]
    print_table(f"Processor time, us (medians of {ROUNDS} rounds)", head, rows)


def _costs(names: list[str]) -> dict[str, float]:
    """Microseconds of a message, by works."""
    rounds: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as running:
        servers = {name: running.enter_context(serving(WORKS[name])) for name in names}
        for _ in range(ROUNDS):
            for name, server in servers.items():
                found = WORKS[name].load(server, seconds=SECONDS)
                rounds[name].append(found["srv_cpu_us_msg"])
    return {name: statistics.median(found) for name, found in rounds.items()}


def _larger(name: str) -> str:
    """The same work with 1 KB."""
    return f"{name}-1k"


if __name__ == "__main__":
    main()
