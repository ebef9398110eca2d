"""Messages a second from one publisher to one subscriber, beside a relay that only copies bytes.

python -m benchmarks wire
"""

from __future__ import annotations

import statistics

from benchmarks.harness import Server, amperage, relay
from benchmarks.tables import print_table

SIZES = (256, 1024)
RUNS = 3


def main() -> None:
    """Measure and print."""
    with amperage() as ours, relay() as floor:
        rows = [[server.name, *rates(server)] for server in (ours, floor)]
    print_table(
        f"One publisher to one subscriber, messages a second (median of {RUNS} runs)",
        ["", *(f"{size} B" for size in SIZES)],
        rows,
    )


def rates(server: Server) -> list[float]:
    """The rate at each size, in messages a second."""
    return [
        statistics.median(
            server.load("-size", str(size), "-secs", "3")["msg_s"] for _ in range(RUNS)
        )
        for size in SIZES
    ]


if __name__ == "__main__":
    main()
