"""Queues: published, delivered, acknowledged and recorded, beside RabbitMQ.

    python -m benchmarks.queues [--rows rates mixed latency behind filters]
                                [--seconds 2] [--rounds 1] [--consumers 1 4 16]
                                [--backlogs 1 10 100 1000] [--sizes 256 1024] [--behind 1000000]

Both servers run at the same time, and every row measures one after the other. Messages are
persistent and confirmed to the publisher, and consumers acknowledge them: up to 80 at a time, and
no more than half of their backlog. RabbitMQ's queue is durable, the backlog its prefetch. Every
message is counted: a row fails if one is lost or comes twice. A generator in C does both ends
(benchmarks/load/queueload.c).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, amperage, tool
from benchmarks.rabbitmq import rabbitmq
from benchmarks.tables import print_table

ELEMENTS: Final = """
  <SOW>
{queues}
  </SOW>
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <JournalSize>256MB</JournalSize>
    <Topic><Name>^jobs</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""
QUEUE: Final = """
    <Queue>
      <Name>{name}</Name><MessageType>json</MessageType>
      <MaxPerSubscriptionBacklog>100000</MaxPerSubscriptionBacklog>
    </Queue>
"""
MIXED: Final = 20
"""Queues that the messages of mixed traffic go to."""
FILTERS: Final = 100
RATE: Final = 1_000
PATIENCE: Final = "900"
"""Seconds that a run may take."""


@contextlib.contextmanager
def queueing() -> Iterator[Server]:
    """Our server, with a queue, and those for mixed traffic."""
    names = ("jobs", *(f"jobs-{number}" for number in range(MIXED)))
    queues = "".join(QUEUE.format(name=name) for name in names)
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).absolute()
        with amperage(ELEMENTS.format(queues=queues, directory=directory)) as server:
            while len(list(directory.glob("journal/*.journal"))) < 2:  # the next is made aside
                time.sleep(0.05)
            yield server


class Bench:
    """What the rows are measured with.

    Args:
        servers: ours first.
        rounds: how often each row is measured; medians are told.
        seconds: of a measurement.
    """

    def __init__(self, servers: Sequence[Server], rounds: int, seconds: float) -> None:
        self._servers = servers
        self._rounds = rounds
        self._common = ("-warm", "0.5", "-secs", str(seconds), "-maxsecs", PATIENCE)

    def row(self, name: str, keys: Sequence[str], *arguments: str) -> list[object]:
        """One row: for each key, the values of all servers."""
        rounds = [
            [
                server.load(*self._common, *arguments, generator="queueload")
                for server in self._servers
            ]
            for _ in range(self._rounds)
        ]
        places = range(len(self._servers))
        return [
            name,
            *(
                statistics.median(one[place][key] for one in rounds)
                for key in keys
                for place in places
            ),
        ]

    def head(self, *titles: str) -> list[str]:
        """The head of a table, with a column of each title for each server."""
        return ["", *(f"{server.name}, {title}" for title in titles for server in self._servers)]


def rates(bench: Bench, asked: argparse.Namespace) -> None:
    """Publish as fast as it goes, with no more than 8,192 messages on their way."""
    print_table(
        "Messages a second: published, delivered, acknowledged, recorded",
        bench.head("messages/s", "CPU us/message"),
        [
            bench.row(
                f"{consumers} consumer(s), backlog {backlog:,}, {size:,} B",
                ("rate", "srv_cpu_us"),
                *("-consumers", str(consumers), "-backlog", str(backlog), "-size", str(size)),
            )
            for size in asked.sizes
            for consumers in asked.consumers
            for backlog in asked.backlogs
        ],
    )


def mixed(bench: Bench, asked: argparse.Namespace) -> None:
    """Publish to a random one of several queues; each consumer takes from all of them."""
    print_table(
        f"The same, each message to a random one of {MIXED} queues",
        bench.head("messages/s", "CPU us/message"),
        [
            bench.row(
                f"{consumers} consumer(s), backlog {backlog:,}, 256 B",
                ("rate", "srv_cpu_us"),
                *("-queues", str(MIXED), "-consumers", str(consumers), "-backlog", str(backlog)),
            )
            for consumers in asked.consumers
            for backlog in asked.backlogs
        ],
    )


def latency(bench: Bench, asked: argparse.Namespace) -> None:
    """From a publish to the delivery, at a rate that nobody has to wait for."""
    print_table(
        f"From publish to delivery at {RATE:,} a second, microseconds",
        bench.head("p50", "p99", "CPU us/message"),
        [
            bench.row(
                f"1 consumer, backlog 100, {size:,} B",
                ("p50_us", "p99_us", "srv_cpu_us"),
                *("-mode", "latency", "-rate", str(RATE), "-size", str(size)),
            )
            for size in asked.sizes
        ],
    )


def behind(bench: Bench, asked: argparse.Namespace) -> None:
    """Publish everything before anybody consumes."""
    print_table(
        f"A queue that is {asked.behind:,} messages behind, 256 B, backlog 100",
        bench.head("filled/s", "CPU us/message", "drained/s", "CPU us/message"),
        [
            bench.row(
                f"{consumers} consumer(s)",
                ("fill_rate", "fill_cpu_us", "rate", "srv_cpu_us"),
                *("-mode", "drain", "-n", str(asked.behind), "-consumers", str(consumers)),
            )
            for consumers in asked.consumers
        ],
    )


def filters(bench: Bench, asked: argparse.Namespace) -> None:
    """Consumers that want messages of their own: of one queue here, of a queue each there."""
    print_table(
        f"{FILTERS} consumers with a filter each (RabbitMQ: with a queue each), 256 B",
        bench.head("messages/s", "CPU us/message"),
        [
            bench.row(
                f"backlog {backlog:,}",
                ("rate", "srv_cpu_us"),
                *("-filters", "1", "-consumers", str(FILTERS), "-backlog", str(backlog)),
            )
            for backlog in asked.backlogs
        ],
    )


ROWS: Final[dict[str, Callable[[Bench, argparse.Namespace], None]]] = {
    "rates": rates,
    "mixed": mixed,
    "latency": latency,
    "behind": behind,
    "filters": filters,
}


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.queues")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seconds", type=float, default=2.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=1, help="of which the medians are told")
    parser.add_argument("--consumers", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--backlogs", nargs="+", type=int, default=[1, 10, 100, 1_000])
    parser.add_argument("--sizes", nargs="+", type=int, default=[256, 1_024], help="in bytes")
    parser.add_argument("--behind", type=int, default=1_000_000, help="messages")
    asked = parser.parse_args(arguments)
    tool("queueload")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(start()) for start in (queueing, rabbitmq)]
        servers = [server for server in started if server is not None]
        for name in asked.rows:
            ROWS[name](Bench(servers, asked.rounds, asked.seconds), asked)


if __name__ == "__main__":
    main(sys.argv[1:])
